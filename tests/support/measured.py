"""Records of runs that never were, for tests that show or store one."""

import reshard_lab as rl


def measurement() -> rl.Measurement:
    where = {"link": "gloo, loopback, 2 cores", "cpu": "Example CPU"}
    times = 0.5, 0.51, 0.6
    return rl.Measurement(
        "broadcast", "auto", ((4, 4),), 1 << 20, 10, times, True, 0.45, 0.4, where
    )


def training() -> rl.pipeline.TrainingRun:
    ops = rl.pipeline.schedule("1f1b", stages=2, microbatches=3)
    timeline = rl.pipeline.simulate(ops, 1.0, 2.0, 0.5)
    sizes, where = rl.pipeline.Transformer(), {"link": "gloo, loopback, 2 cores"}
    times = 14.0, 15.0, 19.0
    return rl.pipeline.TrainingRun(
        sizes, ops, "broadcast", "paced", (), {}, None, True, times, timeline, timeline, where
    )
