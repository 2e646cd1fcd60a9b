# %% [markdown]
# # Scratch
# Eight answers.

# %% tags=["setup"]
import base64
import io
import ipywidgets
import matplotlib.pyplot as plt
import torch
from IPython.display import HTML, display
from tqdm import tqdm

# %% tags=["demo"]
rewards_B = torch.tensor([1.0, 0, 1, 0, 0, 1, 0, 0], dtype=torch.float64)
print(f"mean {rewards_B.mean():.3f}")
for _ in tqdm(range(20)):
    pass
object()

# %% tags=["plot"]
fig, ax = plt.subplots()
ax.plot([0, 1])
out = io.BytesIO()
fig.savefig(out, format="png")
plt.close(fig)
HTML(f'<img alt="a line" src="data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"><p>It climbs from 0 to 1.</p>')

# %% tags=["widget"]
ipywidgets.IntSlider(8, description="G")

# %% tags=["demo", "raises-exception"]
1 / 0
