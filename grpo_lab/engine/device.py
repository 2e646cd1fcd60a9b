"""Where the tensors live."""

import torch

from grpo_lab.guard import require


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """ "auto" is cuda where there is one and else the CPU. Apple's mps must be asked for: it has no float64.

    Raises: ValueError where the device asked for isn't on this machine.
    """
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"there is no device {device!r}; say 'auto', 'cpu', 'cuda' or 'mps'") from error
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    require(here.get(chosen.type, False), f"this machine has no {chosen.type!r}; say device='auto' or 'cpu'")
    return chosen
