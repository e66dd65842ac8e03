"""What each word in the outputs means. The page and results.json show these definitions."""

from __future__ import annotations

from ..record.trial import IMAGES

# {unit} is what the network calls a sample.
_DEFINITIONS: dict[str, str] = {
    "{unit} per second": (
        "Cluster-wide: all workers together, unless a column says per device. {Unit} trained in the measured"
        " window divided by its wall time, after warm-up, with the devices synchronised at both ends."
        " Synchronous workers share the longest window; the speeds of asynchronous workers add up."
    ),
    "allocator": (
        "The C library's memory allocator in the processes of a trial. tuned (the default): it keeps the memory that a"
        " step frees for the next step, which a plain script does not do unless it sets the same variables; on CPUs"
        " that makes steps faster. system: the host's own settings."
    ),
    "point": "All repeats of one configuration on one device count, each in fresh processes. The mean is shown.",
    "±": (
        "Half the 95 % interval of the mean over repeats (Student's t on run means, never on single steps):"
        " relative for {unit}/s, percentage points for efficiency. Fewer than three repeats have none. Where the"
        " results decided the number of repeats (--budget, --until-interval), it is wider by the factor 1 +"
        " 0.8/√repeats."
    ),
    "jitter": (
        "How much the speed changes from step to step within a run: 1.4826 · median absolute deviation of the"
        " per-step speeds, in cluster-wide {unit}/s; the median over repeats."
    ),
    "speed-up": (
        "{unit}/s divided by the {unit}/s of the same series on 1 device. The interval combines both errors"
        " (Welch's t on the log scale)."
    ),
    "efficiency": "Speed-up divided by devices: 100 % is ideal.",
    "efficiency versus local": (
        "The same against the fastest 1-device run of the same work without distribution (strategy local)."
    ),
    "step": "Median step time. A synchronous step lasts as long as its slowest worker.",
    "batch": "{Unit} per step: on each device, and globally over all devices.",
    "weak scaling": "The batch per device is fixed, so the global batch grows with the devices.",
    "strong scaling": "The global batch is fixed, so the batch per device shrinks with the devices.",
    "device": "What one worker trains on: a GPU, or a fixed set of CPU cores.",
    "host": (
        "A machine. The ladder fills one host before it takes the next; a line in tables and charts marks where it"
        " leaves the first. Beyond that line, workers exchange data over the network."
    ),
    "parity": (
        "Whether the frameworks that are compared train the same network: same parameter and operation counts, same"
        " initial weights, same logits, and in float64 the same losses and weights after three steps."
    ),
    "witness": (
        "Whether the timed processes did their work. Losses and weights of each trial's own first steps are compared"
        " with what one device computes with the {unit} of all ranks; afterwards the updates are counted and the clock"
        " is checked. A trial that is refuted is a failed one."
    ),
    "start-up, first step": (
        "Seconds from the start of the slowest worker's process to its first step, and the seconds of that first step,"
        " in which frameworks compile and tune. Neither is part of the measured window."
    ),
    "compile cache": (
        "Whether trials compiled programs (cold), or a cache had all programs that they needed (warm). Nothing is"
        " compiled in the measured window."
    ),
    "epoch": "One pass over the training {unit}, in a new order. Its time is that of its steps alone.",
    "accuracy": (
        "The share of {unit} that are labelled correctly. Training: of an epoch's {unit} as they were trained on,"
        " augmented, each before its update. Validation, or test: of all validation {unit}, after the epoch, with the"
        " network in evaluation mode."
    ),
    "training time": "All epochs, and the first step, in which frameworks compile. Validation is not included.",
    "time to accuracy": (
        "Training time to the end of the first epoch after which the validation accuracy is at least this value. There"
        " is no mean unless every repeat reaches it."
    ),
    "input overhead": (
        "(synthetic - real) / synthetic: {unit}/s on one batch that stays on the device, measured in the same"
        " processes after the window, against {unit}/s on real {unit}. The mean over repeats."
    ),
    "waiting": "The share of the window in which the worker that waited most had no {unit} ready.",
    "memory": (
        "The largest peak over workers and repeats: on the device as the framework's allocator counts it, on the host"
        " as the kernel counts it for the process."
    ),
}


def make_definitions(unit: str = IMAGES) -> dict[str, str]:
    """Return the definitions by word, for a run that counts ``unit``."""
    names = {"unit": unit, "Unit": unit.capitalize()}
    return {word.format(**names): meaning.format(**names) for word, meaning in _DEFINITIONS.items()}
