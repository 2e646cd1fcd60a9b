"""All probes, by the name of the function they ask."""

from grpo_lab.teach.answers import advantages, diagnostics, kl, losses, masked, policy, ratios
from grpo_lab.teach.judge import Probe

PROBES: dict[str, tuple[Probe, ...]] = {
    name: probes
    for table in (masked, policy, ratios, advantages, losses, kl, diagnostics)
    for name, probes in table.PROBES.items()
}
