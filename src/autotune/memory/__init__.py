"""A model's configuration and engine arguments in, what a launch will need out.

    read_shape(config) ─▶ ModelShape ─▶ MemoryModel.predict(arguments) ─▶ Prediction
    read_observation(log) ─▶ Observation ─▶ calibrate(model, …) ─▶ MemoryModel
    Prediction ─▶ Guard.judge ─▶ allow | explore | refuse

Pure arithmetic: nothing here touches a device or imports the engine.
"""

from __future__ import annotations

from autotune.memory.calibration import calibrate
from autotune.memory.forecast import MemoryModel, predict
from autotune.memory.guard import Guard, Verdict
from autotune.memory.launch import Device
from autotune.memory.observation import Observation, read_observation
from autotune.memory.precision import Abstain
from autotune.memory.prediction import Check, Phase, Prediction
from autotune.memory.shape import ModelShape, read_shape


__all__ = [
    "Abstain",
    "Check",
    "Device",
    "Guard",
    "MemoryModel",
    "ModelShape",
    "Observation",
    "Phase",
    "Prediction",
    "Verdict",
    "calibrate",
    "predict",
    "read_observation",
    "read_shape",
]
