# %% [case]
# id: none-tacotron-energies-masked-through-data
# source: mozilla/TTS#258 (layers/common_layers.py, attention.data.masked_fill_)
# family: none
# fails: -
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: [loss.detach()] + [p.grad.clone() for p in decoder.parameters()]
# note: healthy: the energies are masked through .data before softmax saves anything (a Linear's output is not saved, the softmax gives exactly zero gradient there), and the cumulative weights are added in place after cat has copied them.
# %%
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(258)

class LocationAttention(nn.Module):
    def __init__(self, query_dim, embedding_dim, attention_dim=6, kernel=3):
        super().__init__()
        self.query_layer = nn.Linear(query_dim, attention_dim, bias=False)
        self.inputs_layer = nn.Linear(embedding_dim, attention_dim, bias=False)
        self.location_conv = nn.Conv1d(2, 3, kernel, padding=kernel // 2, bias=False)
        self.location_dense = nn.Linear(3, attention_dim, bias=False)
        self.v = nn.Linear(attention_dim, 1)
        self._mask_value = -float('inf')

    def init_states(self, inputs):
        B, T = inputs.shape[:2]
        self.attention_weights = torch.zeros(B, T)
        self.attention_weights_cum = torch.zeros(B, T)

    def get_energies(self, query, processed_inputs):
        loc = torch.cat((self.attention_weights.unsqueeze(1), self.attention_weights_cum.unsqueeze(1)), dim=1)
        loc = self.location_dense(self.location_conv(loc).transpose(1, 2))
        return self.v(torch.tanh(self.query_layer(query).unsqueeze(1) + loc + processed_inputs)).squeeze(-1)

    def forward(self, query, inputs, processed_inputs, mask):
        attention = self.get_energies(query, processed_inputs)
        # apply masking
        if mask is not None:
            attention.data.masked_fill_(~mask, self._mask_value)
        alignment = torch.softmax(attention, dim=-1)
        self.attention_weights = alignment
        self.attention_weights_cum += alignment
        return torch.bmm(alignment.unsqueeze(1), inputs).squeeze(1)
# %%
class Decoder(nn.Module):
    def __init__(self, in_features=5, mel_dim=4, rnn=7):
        super().__init__()
        self.rnn_dim, self.mel_dim = rnn, mel_dim
        self.prenet = nn.Sequential(nn.Linear(mel_dim, 6), nn.ReLU(inplace=True))
        self.attention_rnn = nn.GRUCell(6 + in_features, rnn)
        self.attention = LocationAttention(rnn, in_features)
        self.proj = nn.Linear(rnn + in_features, mel_dim)

    def forward(self, inputs, memory, mask):
        self.attention.init_states(inputs)
        processed = self.attention.inputs_layer(inputs)
        h, context = inputs.new_zeros(len(inputs), self.rnn_dim), inputs.new_zeros(len(inputs), inputs.shape[2])
        outputs = []
        go = torch.zeros(len(inputs), 1, self.mel_dim)
        for frame in torch.cat([go, memory[:, :-1]], 1).unbind(1):        # teacher forcing
            h = self.attention_rnn(torch.cat((self.prenet(frame), context), -1), h)
            context = self.attention(h, inputs, processed, mask)
            outputs.append(self.proj(torch.cat((h, context), -1)))
        return torch.stack(outputs, 1)
# %%
def sequence_mask(lengths, max_len):
    return torch.arange(max_len)[None] < lengths[:, None]

decoder = Decoder()
text = torch.randn(3, 6, 5)
text_lengths = torch.tensor([6, 4, 3])
mel = torch.randn(3, 5, 4)
out = decoder(text, mel, sequence_mask(text_lengths, 6))
loss = F.l1_loss(out, mel)
loss.backward()
print(loss.item(), decoder.attention.attention_weights.detach()[1])
