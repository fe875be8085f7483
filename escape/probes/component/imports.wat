;; Wants to start processes and threads by functions that a host might have and no tool is given.
(component
  (import "wasi:process/spawn@0.2.0" (instance $processes (export "spawn" (func))))
  (import "wasi:thread/spawn@0.2.0" (instance $threads (export "spawn" (func))))
  (core func $process (canon lower (func $processes "spawn")))
  (core func $thread (canon lower (func $threads "spawn")))
  (core module $bomb
    (import "host" "process" (func $process))
    (import "host" "thread" (func $thread))
    (func (export "run") (result i32)
      (loop $more (call $process) (call $thread) (br $more))
      (unreachable)))
  (core instance $made
    (instantiate $bomb (with "host" (instance (export "process" (func $process)) (export "thread" (func $thread))))))
  (func $run (result (result)) (canon lift (core func $made "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
