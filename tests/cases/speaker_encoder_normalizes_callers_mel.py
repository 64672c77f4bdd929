# %% [case]
# id: speaker-encoder-normalizes-callers-mel
# source: https://github.com/speechbrain/speechbrain/issues/2390
# family: modified
# fails: 5
# culprit: 2:11
# saved: 5:4
# needed: 5:9
# effect: same
# observe: [mel.detach(), log] + [p.detach().clone() for p in tts.parameters()]
# note: The speaker encoder's sentence normalisation writes each normalised sentence back into the mel spectrogram it was given, which the reconstruction loss has saved (the issue noticed only the changed data). Fix: normalise a copy.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(2390)
n_mels, emb_dim = 6, 5
# %%
class InputNormalization(nn.Module):
    """sentence mean and variance normalization over the frames that are not padding"""
    def __init__(self, std_norm=True, eps=1e-5):
        super().__init__()
        self.std_norm, self.eps = std_norm, eps

    def forward(self, x, lengths):
        for snt_id in range(x.shape[0]):
            actual_size = int(torch.round(lengths[snt_id] * x.shape[1]))
            current_mean, current_std = self._compute_current_stats(x[snt_id, 0:actual_size])
            x[snt_id] = (x[snt_id] - current_mean) / current_std
        return x

    def _compute_current_stats(self, x):
        current_mean = x.mean(dim=0).detach()
        current_std = x.std(dim=0).detach() if self.std_norm else torch.ones_like(current_mean)
        return current_mean, current_std.clamp(min=self.eps)


class MelSpectrogramEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean_var_norm = InputNormalization()
        self.frame = nn.Linear(n_mels, 8)
        self.embedding = nn.Linear(8, emb_dim)

    def encode_mel_spectrogram_batch(self, mels, lengths):
        feats = self.mean_var_norm(mels, lengths)
        return F.normalize(self.embedding(torch.tanh(self.frame(feats)).mean(dim=1)), dim=-1)
# %%
class Acoustics(nn.Module):
    def __init__(self, n_chars=9):
        super().__init__()
        self.emb = nn.Embedding(n_chars, 8)
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.proj = nn.Linear(8, n_mels)

    def forward(self, chars):
        return self.proj(self.rnn(self.emb(chars))[0])

tts, spk_encoder = Acoustics(), MelSpectrogramEncoder().requires_grad_(False)
optim = torch.optim.Adam(tts.parameters(), lr=1e-2)
# %%
def batches(n):
    for _ in range(n):
        yield torch.randint(0, 9, (3, 7)), torch.randn(3, 7, n_mels), torch.tensor([1., .86, .71]), F.normalize(torch.randn(3, emb_dim), dim=-1)
# %%
log = []
for chars, target, lengths, spk in batches(4):
    mel = tts(chars)
    mel_loss = F.mse_loss(mel, target)
    emb = spk_encoder.encode_mel_spectrogram_batch(mel, lengths)
    spk_loss = 1 - F.cosine_similarity(emb, spk).mean()
    loss = mel_loss + 0.5 * spk_loss
    optim.zero_grad()
    loss.backward()
    optim.step()
    log.append((mel_loss.item(), spk_loss.item()))
# %% [fixed 2]
class InputNormalization(nn.Module):
    """sentence mean and variance normalization over the frames that are not padding"""
    def __init__(self, std_norm=True, eps=1e-5):
        super().__init__()
        self.std_norm, self.eps = std_norm, eps

    def forward(self, x, lengths):
        x = x.clone()
        for snt_id in range(x.shape[0]):
            actual_size = int(torch.round(lengths[snt_id] * x.shape[1]))
            current_mean, current_std = self._compute_current_stats(x[snt_id, 0:actual_size])
            x[snt_id] = (x[snt_id] - current_mean) / current_std
        return x

    def _compute_current_stats(self, x):
        current_mean = x.mean(dim=0).detach()
        current_std = x.std(dim=0).detach() if self.std_norm else torch.ones_like(current_mean)
        return current_mean, current_std.clamp(min=self.eps)


class MelSpectrogramEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean_var_norm = InputNormalization()
        self.frame = nn.Linear(n_mels, 8)
        self.embedding = nn.Linear(8, emb_dim)

    def encode_mel_spectrogram_batch(self, mels, lengths):
        feats = self.mean_var_norm(mels, lengths)
        return F.normalize(self.embedding(torch.tanh(self.frame(feats)).mean(dim=1)), dim=-1)
