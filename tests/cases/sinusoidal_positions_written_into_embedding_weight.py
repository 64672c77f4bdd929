# %% [case]
# id: sinusoidal-positions-written-into-embedding-weight
# source: Atcold/NYU-DLSP20#765
# family: view_of_leaf
# fails: 4
# culprit: 1:12 | 1:13
# saved: -
# needed: 1:12
# effect: same
# observe: [loss.detach(), model.embeddings.word_embeddings.weight.grad.clone(), model.embeddings.position_embeddings.weight.detach().clone()]
# note: the helper fills slices of an nn.Embedding's weight while it still requires grad (E.detach_() comes after). Human fix: write under torch.no_grad(); the table is not learned (asked in the thread), so requires_grad = False stays.
# %%
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(765)

def create_sinusoidal_embeddings(nb_p, dim, E):
    theta = np.array([
        [p / np.power(10000, 2 * (j // 2) / dim) for j in range(dim)]
        for p in range(nb_p)
    ])
    E[:, 0::2] = torch.FloatTensor(np.sin(theta[:, 0::2]))
    E[:, 1::2] = torch.FloatTensor(np.cos(theta[:, 1::2]))
    E.requires_grad = False
    return E
# %%
class Embeddings(nn.Module):
    def __init__(self, d_model, vocab_size, max_position_embeddings, p):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, d_model, padding_idx=1)
        self.position_embeddings = nn.Embedding(max_position_embeddings, d_model)
        create_sinusoidal_embeddings(
            nb_p=max_position_embeddings,
            dim=d_model,
            E=self.position_embeddings.weight
        )
        self.LayerNorm = nn.LayerNorm(d_model, eps=1e-12)

    def forward(self, input_ids):
        position_ids = torch.arange(input_ids.size(1), dtype=torch.long).unsqueeze(0).expand_as(input_ids)
        return self.LayerNorm(self.word_embeddings(input_ids) + self.position_embeddings(position_ids))
# %%
class TransformerClassifier(nn.Module):
    def __init__(self, num_layers, d_model, num_heads, conv_hidden_dim, input_vocab_size, num_answers):
        super().__init__()
        self.embeddings = Embeddings(d_model, input_vocab_size, 16, p=0.1)
        layer = lambda: nn.TransformerEncoderLayer(d_model, num_heads, conv_hidden_dim, dropout=0., batch_first=True)
        self.enc_layers = nn.ModuleList([layer() for _ in range(num_layers)])
        self.dense = nn.Linear(d_model, num_answers)

    def forward(self, x):
        x = self.embeddings(x)
        for enc in self.enc_layers:
            x = enc(x)
        return self.dense(x.max(dim=1)[0])
# %%
model = TransformerClassifier(num_layers=1, d_model=8, num_heads=2,
                              conv_hidden_dim=16, input_vocab_size=30, num_answers=2)
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)
x, y = torch.randint(2, 30, (4, 10)), torch.tensor([0, 1, 1, 0])
loss = F.cross_entropy(model(x), y)
optimizer.zero_grad(); loss.backward(); optimizer.step()
# %% [fixed 1]
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(765)

def create_sinusoidal_embeddings(nb_p, dim, E):
    theta = np.array([
        [p / np.power(10000, 2 * (j // 2) / dim) for j in range(dim)]
        for p in range(nb_p)
    ])
    with torch.no_grad():
        E[:, 0::2] = torch.FloatTensor(np.sin(theta[:, 0::2]))
        E[:, 1::2] = torch.FloatTensor(np.cos(theta[:, 1::2]))
    E.requires_grad = False
    return E
