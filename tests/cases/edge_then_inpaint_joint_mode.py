# %% [case]
# id: edge-then-inpaint-joint-mode
# source: https://github.com/knazeri/edge-connect/issues/40
# family: second_backward
# fails: 4
# culprit: 2:14|4:10
# saved: 2:6
# needed: 2:14|4:11
# effect: same
# observe: [torch.tensor(logs)] + [p.detach().clone() for p in list(edge_model.parameters()) + list(inpaint_model.parameters())]
# note: Joint mode: the inpainting loss runs through the edge generator's output and its backward frees the edge generator's graph; the edge generator's own backward comes after. Joint optimization is meant, so keep the graph in the first backward (retain_graph=True).
# %%
import torch
import torch.nn as nn
torch.manual_seed(40)
# %%
class Generator(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(cin, 4, 3, padding=1), nn.ReLU(True), nn.Conv2d(4, cout, 3, padding=1))
    def forward(self, x):
        return torch.sigmoid(self.net(x))

class BaseModel(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.generator = Generator(cin, cout)
        self.gen_optimizer = torch.optim.Adam(self.generator.parameters(), lr=1e-2, betas=(0.0, 0.9))
    def backward(self, gen_loss, retain_graph=False):
        gen_loss.backward(retain_graph=retain_graph)
        self.gen_optimizer.step()
# %%
class EdgeModel(BaseModel):
    def process(self, gray, edges, masks):
        self.gen_optimizer.zero_grad()
        outputs = self.generator(torch.cat([gray * (1 - masks), edges * (1 - masks), masks], dim=1))
        return outputs, nn.functional.binary_cross_entropy(outputs, edges)

class InpaintingModel(BaseModel):
    def process(self, images, edges, masks):
        self.gen_optimizer.zero_grad()
        outputs = self.generator(torch.cat([images * (1 - masks) + masks, edges], dim=1))
        return outputs, (outputs - images).abs().mean() / masks.mean()

edge_model, inpaint_model = EdgeModel(3, 1), InpaintingModel(4, 3)
# %%
logs = []
for iteration in range(3):
    images, edges = torch.rand(2, 3, 8, 8), (torch.rand(2, 1, 8, 8) > 0.7).float()
    masks = torch.zeros(2, 1, 8, 8)
    masks[:, :, 2:6, 2:6] = 1
    e_outputs, e_gen_loss = edge_model.process(images.mean(1, keepdim=True), edges, masks)
    e_merged = e_outputs * masks + edges * (1 - masks)
    i_outputs, i_gen_loss = inpaint_model.process(images, e_merged, masks)
    # backward
    inpaint_model.backward(i_gen_loss)
    edge_model.backward(e_gen_loss)
    logs.append([e_gen_loss.item(), i_gen_loss.item()])
# %% [fixed 4]
logs = []
for iteration in range(3):
    images, edges = torch.rand(2, 3, 8, 8), (torch.rand(2, 1, 8, 8) > 0.7).float()
    masks = torch.zeros(2, 1, 8, 8)
    masks[:, :, 2:6, 2:6] = 1
    e_outputs, e_gen_loss = edge_model.process(images.mean(1, keepdim=True), edges, masks)
    e_merged = e_outputs * masks + edges * (1 - masks)
    i_outputs, i_gen_loss = inpaint_model.process(images, e_merged, masks)
    # backward
    inpaint_model.backward(i_gen_loss, retain_graph=True)
    edge_model.backward(e_gen_loss)
    logs.append([e_gen_loss.item(), i_gen_loss.item()])
