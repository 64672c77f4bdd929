# %% [case]
# id: lstm-state-in-a-list-of-a-closure
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:4
# effect: truncates
# observe: [p.detach().clone() for p in lstm.parameters()]
# note: the LSTM's state is carried from call to call in a list that the inner function keeps, with its graph. Fix: detach the state.
# %%
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(10)
lstm = nn.LSTM(input_size=2, hidden_size=5, batch_first=True)
sgd = torch.optim.SGD(lstm.parameters(), lr=0.05)
series = torch.sin(torch.arange(0, 24) * 0.3).reshape(1, -1, 1)
# %%
def stateful(model):
    memory = [None]
    def predict(window):
        y, memory[0] = model(window, memory[0])
        return y[..., :1]
    return predict

predict = stateful(lstm)
# %%
for window in series.split(6, dim=1):
    inputs = torch.cat([window, window ** 2], dim=-1)
    err = F.mse_loss(predict(inputs)[:, :-1], window[:, 1:])
    sgd.zero_grad(); err.backward()
    sgd.step()
print(err.item())
# %% [fixed 2]
def stateful(model):
    memory = [None]
    def predict(window):
        y, (h, c) = model(window, memory[0])
        memory[0] = h.detach(), c.detach()
        return y[..., :1]
    return predict

predict = stateful(lstm)
