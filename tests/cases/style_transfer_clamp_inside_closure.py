# %% [case]
# id: style-transfer-clamp-inside-closure
# source: neural style transfer tutorial, LBFGS closure that clamps the image
# family: leaf
# fails: 3
# culprit: 2:9
# saved: -
# needed: 2:9
# effect: same
# observe: [input_img.detach().clone()]
# note: input_img is the leaf that is optimised, clamp_ on it in the closure is refused. Fix: with torch.no_grad().
# %%
import torch, torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval().requires_grad_(False)
content_img = torch.rand(1, 3, 8, 8)
target = cnn(content_img).detach() * 0.5
# %%
def run_style_transfer(cnn, input_img, target, num_steps=4):
    """Run the style transfer."""
    optimizer = torch.optim.LBFGS([input_img.requires_grad_()], max_iter=2)
    run = [0]
    while run[0] <= num_steps:

        def closure():
            # correct the values of updated input image
            input_img.clamp_(0, 1)
            optimizer.zero_grad()
            loss = F.mse_loss(cnn(input_img), target)
            loss.backward()
            run[0] += 1
            return loss

        optimizer.step(closure)
    return input_img
# %%
input_img = content_img.clone()
output = run_style_transfer(cnn, input_img, target)
# %% [fixed 2]
def run_style_transfer(cnn, input_img, target, num_steps=4):
    """Run the style transfer."""
    optimizer = torch.optim.LBFGS([input_img.requires_grad_()], max_iter=2)
    run = [0]
    while run[0] <= num_steps:

        def closure():
            # correct the values of updated input image
            with torch.no_grad():
                input_img.clamp_(0, 1)
            optimizer.zero_grad()
            loss = F.mse_loss(cnn(input_img), target)
            loss.backward()
            run[0] += 1
            return loss

        optimizer.step(closure)
    return input_img
