# SPDX-License-Identifier: Apache-2.0
"""A case: a step with one planted cause, the step mended, and the answer an expert gives."""

from dataclasses import asdict, dataclass

CASES = {}


@dataclass(frozen=True)
class Profile:
    """How the trace is recorded; users differ in this, so the cases do."""

    with_stack: bool = False
    with_modules: bool = False
    record_shapes: bool = False
    profile_memory: bool = False
    schedule: bool = True
    steps: int = 4

    def options(self):
        return {
            "with_stack": self.with_stack,
            "with_modules": self.with_modules,
            "record_shapes": self.record_shapes,
            "profile_memory": self.profile_memory,
        }


@dataclass(frozen=True)
class Case:
    """`build(mended)` gives the step; `build(mended, rank, world)` where scale is "distributed".

    `names`: the answer names one of them. `actions`: it says one of them. Both were written before a
    trace was recorded. A clean case has neither.
    """

    id: str
    round: int  # 0: a clean case
    domain: str
    mode: str  # training or inference
    profile: Profile
    cause: str
    symptom: str
    answer: str
    names: tuple
    actions: tuple
    scale: str = "single"
    same_result: bool = True  # the first step gives the same number, mended or not
    build: object = None

    @property
    def clean(self):
        return self.round == 0

    def expected(self):
        fields = asdict(self)
        del fields["build"], fields["same_result"]
        return fields


def case(**fields):
    """Adds the decorated function to the cases, as the function that builds the step."""

    def add(build):
        new = Case(build=build, **fields)
        assert new.id not in CASES, f"two cases are called {new.id}"
        CASES[new.id] = new
        return build

    return add


def clean(**fields):
    """A well written model: nothing to find that would pay."""
    return case(
        round=0,
        cause="none",
        symptom="none",
        names=(),
        actions=(),
        **fields,
    )
