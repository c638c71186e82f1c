from bench.clock import Clock
from bench.contestant import Contestant


class Time:
    """A clock that only steps and preparations move."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


def test_preparation_is_not_timed():
    time = Time()
    contestant = Contestant(lambda: time.pass_by(2.0), before=lambda: time.pass_by(5.0))
    clock = Clock(contestant, time)
    clock.warm_up()
    assert clock.turn(3.0) == [2.0]


def test_a_turn_lasts_as_long_as_it_should_and_has_a_step_at_least():
    time = Time()
    clock = Clock(Contestant(lambda: time.pass_by(0.25)), time)
    clock.warm_up()
    assert clock.turn(1.0) == [0.25] * 4
    assert clock.turn(0.0) == [0.25]


def test_a_turn_begins_with_a_step_that_is_not_timed_unless_steps_are_slow():
    time = Time()
    lengths = iter([8.0, 0.125, 0.125, 0.25, 0.0625])
    clock = Clock(Contestant(lambda: time.pass_by(next(lengths))), time)
    clock.warm_up()
    assert clock.turn(0.0) == [0.0625]

    lengths = iter([8.0, 1.0, 2.0])
    clock = Clock(Contestant(lambda: time.pass_by(next(lengths))), time)
    clock.warm_up()
    assert clock.turn(0.0) == [2.0]


def test_a_turn_of_several_threads_begins_with_steps_that_are_not_timed():
    time = Time()
    done = []

    def step():
        done.append(time.now)
        time.pass_by(0.125)

    clock = Clock(Contestant(step), time, warm=1.0)
    clock.warm_up()
    before = len(done)
    assert clock.turn(0.25) == [0.125] * 2
    assert len(done) - before == 8 + 2


def test_short_steps_are_timed_in_groups():
    time = Time()
    calls = []

    def step():
        calls.append(time.now)
        time.pass_by(2.0**-20)  # about a microsecond, exactly representable

    clock = Clock(Contestant(step), time)
    clock.warm_up()
    before = len(calls)
    assert clock.turn(0.0) == [2.0**-20]
    assert len(calls) - before > 100


def test_the_loss_is_read_after_the_steps_that_it_is_defined_by():
    done = []
    contestant = Contestant(
        lambda: done.append(1), loss=lambda: float(len(done)), steps_to_loss=7, examples=3
    )
    assert Clock(contestant).warm_up() == {"loss": 7.0, "examples": 3}
