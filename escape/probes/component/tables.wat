;; Grows a table until it is refused, which is more than any tool may have; then it fails.
(component
  (core module $bomb
    (table $table 1 funcref)
    (func (export "run") (result i32)
      (block $full
        (loop $more
          (br_if $full (i32.eq (table.grow $table (ref.null func) (i32.const 1000)) (i32.const -1)))
          (br $more)))
      (unreachable)))
  (core instance $made (instantiate $bomb))
  (func $run (result (result)) (canon lift (core func $made "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
