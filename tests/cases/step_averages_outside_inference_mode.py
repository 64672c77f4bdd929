# %% [case]
# id: step-averages-outside-inference-mode
# source: mrdbourke/pytorch-deep-learning#397
# family: inference
# fails: 4
# culprit: 3:10 | 3:14
# saved: -
# needed: 3:14
# effect: same
# observe: [results, model_1[0].weight.detach().clone()]
# note: test_loss is accumulated under inference_mode (so it is an inference tensor) and divided in place after the with. Human answer: indent the averaging (and printing) into the context manager.
# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(42)
X = torch.randn(60, 2)
y = (X[:, 0] * X[:, 1] > 0).long() + (X[:, 0] > 1).long()
train_dataloader = DataLoader(TensorDataset(X[:40], y[:40]), batch_size=16, shuffle=False)
test_dataloader = DataLoader(TensorDataset(X[40:], y[40:]), batch_size=16)
class_names = ['a', 'b', 'c']
# %%
def accuracy_fn(y_true, y_pred):
    correct = torch.eq(y_true, y_pred).sum().item()
    return (correct / len(y_pred)) * 100

def train_step(model, data_loader, loss_fn, optimizer, accuracy_fn, device='cpu'):
    '''Performs a training step with model trying to learn on data_loader.'''
    train_loss, train_acc = 0, 0
    model.train()
    for batch, (X, y) in enumerate(data_loader):
        X, y = X.to(device), y.to(device)
        y_pred = model(X)
        loss = loss_fn(y_pred, y)
        train_loss += loss.detach()
        train_acc += accuracy_fn(y_true=y, y_pred=y_pred.argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    train_loss /= len(data_loader)
    train_acc /= len(data_loader)
    print(f'Train loss: {train_loss:.5f} | Train acc: {train_acc:.2f}%')
    return train_loss
# %%
def test_step(model, data_loader, loss_fn, accuracy_fn, device='cpu'):
    '''Performs a testing loop step on model going over data_loader.'''
    test_loss, test_acc = 0, 0
    model.eval()
    # Turn on inference mode context manager
    with torch.inference_mode():
        for X, y in data_loader:
            X, y = X.to(device), y.to(device)
            test_pred = model(X)
            test_loss += loss_fn(test_pred, y)
            test_acc += accuracy_fn(y_true=y, y_pred=test_pred.argmax(dim=1))

    # Adjust metrics and print out
    test_loss /= len(data_loader)
    test_acc /= len(data_loader)
    print(f'Test loss: {test_loss:.5f} | Test acc: {test_acc:.2f}%')
    return test_loss.item()
# %%
model_1 = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, len(class_names)))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model_1.parameters(), lr=0.1)
results = []
epochs = 2
for epoch in range(epochs):
    print(f'Epoch: {epoch}')
    train_step(model=model_1, data_loader=train_dataloader, loss_fn=loss_fn,
               optimizer=optimizer, accuracy_fn=accuracy_fn)
    results.append(test_step(model=model_1, data_loader=test_dataloader, loss_fn=loss_fn,
                             accuracy_fn=accuracy_fn))
# %% [fixed 3]
def test_step(model, data_loader, loss_fn, accuracy_fn, device='cpu'):
    '''Performs a testing loop step on model going over data_loader.'''
    test_loss, test_acc = 0, 0
    model.eval()
    # Turn on inference mode context manager
    with torch.inference_mode():
        for X, y in data_loader:
            X, y = X.to(device), y.to(device)
            test_pred = model(X)
            test_loss += loss_fn(test_pred, y)
            test_acc += accuracy_fn(y_true=y, y_pred=test_pred.argmax(dim=1))

        # Adjust metrics and print out
        test_loss /= len(data_loader)
        test_acc /= len(data_loader)
        print(f'Test loss: {test_loss:.5f} | Test acc: {test_acc:.2f}%')
    return test_loss.item()
