# %% [case]
# id: hook-features-before-inplace-relu
# source: https://github.com/ViCCo-Group/thingsvision/issues/44, https://github.com/meta-pytorch/captum/issues/156
# family: silent
# fails: -
# culprit: 2:4|2:22
# saved: -
# needed: 4:7
# effect: same
# observe: [loss.detach()] + [p.grad.clone() for p in student.parameters() if p.grad is not None]
# note: The hook keeps a pointer to the output of features.0; the ReLU(inplace=True) behind it overwrites it, so the distillation loss sees (and differentiates through) rectified features. Nothing raises: neither the convolution nor the loss saved the old values. Fix of the thread: the hook stores a copy.
# %%
import torch
import torch.nn as nn
torch.manual_seed(44)
# %%
def make_net(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4))

class Extractor:
    def __init__(self, model, module_names):
        self.model, self.activations = model, {}
        for name, module in model.named_modules():
            if name in module_names:
                module.register_forward_hook(self._hook(name))

    def _hook(self, name):
        def hook(module, input, output):
            self.activations[name] = output
        return hook

    def __call__(self, x):
        out = self.model(x)
        return out, self.activations
# %%
teacher, student = make_net(4).requires_grad_(False), make_net(4)
t_ext, s_ext = Extractor(teacher, ["0"]), Extractor(student, ["0"])
opt = torch.optim.SGD(student.parameters(), lr=0.1)
# %%
for step in range(2):
    x, y = torch.randn(6, 1, 5, 5), torch.randint(4, (6,))
    _, t_act = t_ext(x)
    logits, s_act = s_ext(x)
    loss = nn.functional.cross_entropy(logits, y) + nn.functional.mse_loss(s_act["0"], t_act["0"])
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
# %% [fixed 2]
def make_net(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4))

class Extractor:
    def __init__(self, model, module_names):
        self.model, self.activations = model, {}
        for name, module in model.named_modules():
            if name in module_names:
                module.register_forward_hook(self._hook(name))

    def _hook(self, name):
        def hook(module, input, output):
            self.activations[name] = output.clone()
        return hook

    def __call__(self, x):
        out = self.model(x)
        return out, self.activations
