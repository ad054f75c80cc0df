"""Records and tables of runs that never were, for tests that show or store one."""

import pandas as pd

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


def measured_table() -> pd.DataFrame:
    """Times of 1 to 4 s for two methods in two cases."""
    rows = [
        (1, "send_recv", 4.0, 3.5, 5.0, 3.0, 3.25, 1.0),
        (1, "broadcast", 2.0, 1.75, 2.25, 1.5, 1.6, 1.0),
        (2, "send_recv", 3.0, 3.0, 3.0, 3.0, 3.0, 0.5),
        (2, "broadcast", 1.0, 0.75, 1.25, 1.0, 1.0, 0.5),
    ]
    names = ["case", "method", "measured_s", "fastest_s", "slowest_s"]
    names += ["predicted_s", "simulated_s", "lower_bound_s"]
    table = pd.DataFrame(rows, columns=names)
    pairs = {"measured": "measured", "low": "slowest", "high": "fastest", "predicted": "predicted"}
    rates = {f"{rate}_Gbps": 2 / table[f"{time}_s"] for rate, time in pairs.items()}
    rates |= {"simulated_Gbps": 2 / table.simulated_s, "bound_Gbps": 2 / table.lower_bound_s}
    where = {"link": "gloo, emulated 400 Mbit/s NICs, 2 cores", "cpu": "A processor"}
    return table.assign(**rates, **where)
