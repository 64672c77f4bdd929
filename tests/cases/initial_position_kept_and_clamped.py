# %% [case]
# id: initial-position-kept-and-clamped
# source: https://github.com/Genesis-Embodied-AI/genesis-world/issues/1776
# family: view_of_leaf
# fails: 4
# culprit: 2:9
# saved: -
# needed: 2:9
# effect: same
# observe: [loss.detach(), init_pos.grad.clone()] + [v.grad.clone() for v in v_list]
# note: the entity keeps the caller's leaf as its state and puts it above the ground through a column of it. Human fix: the entity clones the position it is given.
# %%
import torch
torch.manual_seed(1776)
horizon, dt = 5, 0.1
goal = torch.tensor([[0.5, 0.8, 0.1]])
# %%
class Entity:
    """rigid sphere pushed by commanded velocities"""
    def __init__(self, ground=0.05, drag=0.3):
        self.ground, self.drag = ground, drag
        self.pos = self.vel = None

    def set_position(self, pos):
        self.pos = pos
        self.pos[:, 2].clamp_(min=self.ground)
        self.vel = torch.zeros_like(pos)

    def set_velocity(self, vel):
        self.vel = vel + (1 - self.drag) * self.vel

    def substep(self, dt):
        self.pos = self.pos + dt * self.vel
# %%
class Scene:
    def __init__(self): self.entities, self.states = [], []
    def add_entity(self, e):
        self.entities.append(e)
        return e
    def step(self):
        for e in self.entities: e.substep(dt)
        self.states.append({"pos": self.entities[0].pos})

scene = Scene()
tool = scene.add_entity(Entity())
init_pos = torch.tensor([[0.3, 0.1, 0.02], [0.2, 0.0, 0.28]], requires_grad=True)
v_list = [torch.tensor([[0., 1., 0.]], requires_grad=True) for _ in range(horizon)]
# %%
tool.set_position(init_pos)
loss = 0.0
for v in v_list:
    tool.set_velocity(v)
    scene.step()
    loss = loss + torch.pow(scene.states[-1]["pos"] - goal, 2).sum()
loss.backward()
print(init_pos.grad, v_list[0].grad)
# %% [fixed 2]
class Entity:
    """rigid sphere pushed by commanded velocities"""
    def __init__(self, ground=0.05, drag=0.3):
        self.ground, self.drag = ground, drag
        self.pos = self.vel = None

    def set_position(self, pos):
        self.pos = pos.clone()
        self.pos[:, 2].clamp_(min=self.ground)
        self.vel = torch.zeros_like(pos)

    def set_velocity(self, vel):
        self.vel = vel + (1 - self.drag) * self.vel

    def substep(self, dt):
        self.pos = self.pos + dt * self.vel
