"""Answers that are none, and ends that are no good ones. What counts is the code the caller gets."""

import ctypes
import os
import signal
import sys

from hostile import main, probe


def says(data):
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


@probe
def answer_not_json(parameters):
    says(b"everything went fine")


@probe
def answer_empty(parameters):
    says(b"")


@probe
def answer_blank(parameters):
    says(b" \n\t\n")


@probe
def answer_invalid_utf8(parameters):
    says(b'{"escaped": "\xff\xfe\xc0\x80"}')


@probe
def answer_lone_surrogate(parameters):
    says(b'{"escaped": "\\ud800"}')


@probe
def answer_deeply_nested(parameters):
    says(b"[" * 100_000 + b"]" * 100_000)


@probe
def answer_deeply_nested_objects(parameters):
    says(b'{"a":' * 50_000 + b"1" + b"}" * 50_000)


@probe
def answer_huge(parameters):
    says(b'{"escaped": "' + b"x" * (8 << 20) + b'"}')


@probe
def answer_huge_number(parameters):
    says(b'{"escaped": ' + b"9" * 500_000 + b"}")


@probe
def answer_twice(parameters):
    says(b'{"escaped": true}{"escaped": true}')


@probe
def answer_same_member_twice(parameters):
    says(b'{"escaped": false, "escaped": true}')


@probe
def answer_not_a_number(parameters):
    says(b'{"escaped": NaN}')


@probe
def answer_with_zero_bytes(parameters):
    says(b'{"escaped": true}\0\0\0')


@probe
def answer_of_another_shape(parameters):
    says(b"[1, 2, 3]")


@probe
def answer_cut_off(parameters):
    says(b'{"escaped": tr')


@probe
def answer_and_failure(parameters):
    says(b'{"escaped": true}')
    os._exit(3)


@probe
def crash_by_bad_address(parameters):
    ctypes.string_at(1)


@probe
def crash_by_abort(parameters):
    os.abort()


@probe
def crash_by_own_kill(parameters):
    os.kill(os.getpid(), signal.SIGKILL)


@probe
def crash_after_answer(parameters):
    says(b'{"escaped": true}')
    ctypes.string_at(1)


@probe
def closes_its_streams(parameters):
    for fd in range(3):
        os.close(fd)
    os._exit(0)


if __name__ == "__main__":
    main()
