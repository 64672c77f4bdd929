# %% [case]
# id: gap-normalize-and-scale-data
# source: OmidPoursaeed/Generative_Adversarial_Perturbations#4
# family: silent
# fails: -
# culprit: 2:2 | 2:3 | 2:7 | 2:14
# saved: 4:5
# needed: 4:10
# effect: other
# observe: [loss.detach(), netG[0].weight.grad.clone(), netG[2].weight.grad.clone()]
# note: normalize_and_scale changes the generator's output through .data: tanh saved that tensor, so its derivative 1 - y^2 is taken at the scaled values, and the factors 0.5, 1/std and the l_inf scale are missing from the gradient. Nothing is raised. Fix (what the thread asks for): no .data, tracked operations on delta_im.
# %%
import torch
import torch.nn as nn
mag_in = 10.0
mean_arr = [0.485, 0.456, 0.406]
stddev_arr = [0.229, 0.224, 0.225]
# %%
def normalize_and_scale(delta_im):
    delta_im.data += 1 # now 0..2
    delta_im.data *= 0.5 # now 0..1

    # normalize image color channels
    for c in range(3):
        delta_im.data[:,c,:,:] = (delta_im.data[:,c,:,:] - mean_arr[c]) / stddev_arr[c]

    # threshold each channel of each image in delta_im according to inf norm
    for i in range(delta_im.size(0)):
        for ci in range(3):
            l_inf_channel = delta_im[i,ci,:,:].data.abs().max()
            mag_in_scaled_c = mag_in / (255.0 * stddev_arr[ci])
            delta_im[i,ci,:,:].data *= min(1.0, (mag_in_scaled_c / l_inf_channel).item())
    return delta_im
# %%
torch.manual_seed(123)
netG = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(True),
                     nn.Conv2d(6, 3, 3, padding=1), nn.Tanh())
pretrained_clf = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 3 * 3, 4))
for p in pretrained_clf.parameters():
    p.requires_grad_(False)
criterion_pre = nn.CrossEntropyLoss()
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
# %%
image = torch.randn(2, 3, 8, 8)
# least likely class
target_label = pretrained_clf(image).min(1)[1]

delta_im = netG(image)
delta_im = normalize_and_scale(delta_im)
netG.zero_grad()
recons = torch.add(image, delta_im)
loss = torch.log(criterion_pre(pretrained_clf(recons), target_label))
loss.backward()
optimizerG.step()
print("===> loss: {:.4f}".format(loss.item()))
# %% [fixed 2]
def normalize_and_scale(delta_im):
    delta_im = delta_im + 1 # now 0..2
    delta_im = delta_im * 0.5 # now 0..1

    # normalize image color channels
    for c in range(3):
        delta_im[:,c,:,:] = (delta_im[:,c,:,:].clone() - mean_arr[c]) / stddev_arr[c]

    # threshold each channel of each image in delta_im according to inf norm
    for i in range(delta_im.size(0)):
        for ci in range(3):
            l_inf_channel = delta_im[i,ci,:,:].data.abs().max()
            mag_in_scaled_c = mag_in / (255.0 * stddev_arr[ci])
            delta_im[i,ci,:,:] = delta_im[i,ci,:,:].clone() * min(1.0, (mag_in_scaled_c / l_inf_channel).item())
    return delta_im
