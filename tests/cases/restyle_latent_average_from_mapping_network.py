# %% [case]
# id: restyle-latent-average-from-mapping-network
# source: https://github.com/yuval-alaluf/restyle-encoder/issues/15
# family: second_backward
# fails: 4
# culprit: 3:12
# saved: 1:19
# needed: 3:29
# effect: same
# observe: [h['loss_l2'] for h in coach.history] + [h['loss_w_norm'] for h in coach.history] + [p.detach().clone() for p in coach.net.encoder.parameters()]
# note: a converted generator has no 'latent_avg' in its checkpoint, so it is averaged from the mapping network when the net is built, with graph. It is added to the codes in every refinement step, each with its own loss.backward(); the second one meets the freed graph. Reconstructed from the report (converted generator). Fix: detach latent_avg; only the encoder is trained.
# %%
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(15)


class Generator(nn.Module):
    """StyleGAN2 stand-in: mapping network + synthesis with n_latent styles."""
    def __init__(self, style_dim=6, n_latent=3, size=4):
        super().__init__()
        self.style_dim, self.n_latent, self.size = style_dim, n_latent, size
        self.style = nn.Sequential(*[m for _ in range(2) for m in (nn.Linear(style_dim, style_dim), nn.LeakyReLU(0.2))])
        self.const = nn.Parameter(torch.randn(1, 8))
        self.mods = nn.ModuleList([nn.Linear(style_dim, 8) for _ in range(n_latent)])
        self.to_rgb = nn.Linear(8, 3 * size * size)

    def mean_latent(self, n_latent):
        latent_in = torch.randn(n_latent, self.style_dim)
        styles = self.style(latent_in)
        return styles.mean(0, keepdim=True)

    def forward(self, latent):
        out = self.const
        for i, mod in enumerate(self.mods):
            out = F.leaky_relu(out * (1 + mod(latent[:, i])), 0.2)
        return torch.tanh(self.to_rgb(out)).view(-1, 3, self.size, self.size)
# %%
class pSp(nn.Module):
    def __init__(self, ckpt):
        super(pSp, self).__init__()
        self.decoder = Generator()
        self.decoder.load_state_dict(ckpt['g_ema'])
        d = self.decoder
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(6 * d.size ** 2, 16), nn.PReLU(), nn.Linear(16, d.n_latent * d.style_dim),
                                     nn.Unflatten(1, (d.n_latent, d.style_dim)))
        self.__load_latent_avg(ckpt, repeat=d.n_latent)

    def __load_latent_avg(self, ckpt, repeat=None):
        if 'latent_avg' in ckpt:
            self.latent_avg = ckpt['latent_avg']
        else:
            # rosinality checkpoints do not have it
            self.latent_avg = self.decoder.mean_latent(int(1e3))
        if repeat is not None:
            self.latent_avg = self.latent_avg.repeat(repeat, 1)

    def forward(self, x, latent=None, input_code=False, return_latents=False):
        if input_code:
            codes = x
        else:
            codes = self.encoder(x)
            # residual step
            codes = codes + (self.latent_avg.repeat(codes.shape[0], 1, 1) if latent is None else latent)
        images = self.decoder(codes)
        return (images, codes) if return_latents else images
# %%
class Coach:
    def __init__(self, ckpt, n_iters_per_batch=3, lr=1e-3, l2_lambda=1., w_norm_lambda=0.1):
        self.net, self.n_iters = pSp(ckpt), n_iters_per_batch
        self.l2_lambda, self.w_norm_lambda = l2_lambda, w_norm_lambda
        self.optimizer = torch.optim.Adam(self.net.encoder.parameters(), lr=lr)   # train_decoder=False
        with torch.no_grad():
            self.avg_image = self.net(self.net.latent_avg.unsqueeze(0), input_code=True)[0]
        self.history = []

    def calc_loss(self, y, y_hat, latent):
        loss_dict = {'loss_l2': F.mse_loss(y_hat, y),
                     'loss_w_norm': (latent - self.net.latent_avg).norm(2, dim=(1, 2)).mean()}
        loss = self.l2_lambda * loss_dict['loss_l2'] + self.w_norm_lambda * loss_dict['loss_w_norm']
        return loss, {k: float(v) for k, v in loss_dict.items()}

    def perform_train_iteration_on_batch(self, x, y):
        y_hat, latent = None, None
        for iter in range(self.n_iters):
            if iter == 0:
                avg_image_for_batch = self.avg_image.unsqueeze(0).repeat(x.shape[0], 1, 1, 1)
                x_input = torch.cat([x, avg_image_for_batch], dim=1)
                y_hat, latent = self.net(x_input, latent=None, return_latents=True)
            else:
                y_hat_clone = y_hat.clone().detach().requires_grad_(True)
                latent_clone = latent.clone().detach().requires_grad_(True)
                x_input = torch.cat([x, y_hat_clone], dim=1)
                y_hat, latent = self.net(x_input, latent=latent_clone, return_latents=True)
            loss, loss_dict = self.calc_loss(y, y_hat, latent)
            loss.backward()
        return loss_dict

    def train(self, batches):
        for x in batches:
            self.optimizer.zero_grad()
            self.history.append(self.perform_train_iteration_on_batch(x, x))
            self.optimizer.step()
# %%
converted = {'g_ema': Generator().state_dict()}
coach = Coach(converted)
coach.train([torch.rand(2, 3, 4, 4) for _ in range(2)])
print(coach.history)
# %% [fixed 2]
class pSp(nn.Module):
    def __init__(self, ckpt):
        super(pSp, self).__init__()
        self.decoder = Generator()
        self.decoder.load_state_dict(ckpt['g_ema'])
        d = self.decoder
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(6 * d.size ** 2, 16), nn.PReLU(), nn.Linear(16, d.n_latent * d.style_dim),
                                     nn.Unflatten(1, (d.n_latent, d.style_dim)))
        self.__load_latent_avg(ckpt, repeat=d.n_latent)

    def __load_latent_avg(self, ckpt, repeat=None):
        if 'latent_avg' in ckpt:
            self.latent_avg = ckpt['latent_avg']
        else:
            # rosinality checkpoints do not have it
            self.latent_avg = self.decoder.mean_latent(int(1e3)).detach()
        if repeat is not None:
            self.latent_avg = self.latent_avg.repeat(repeat, 1)

    def forward(self, x, latent=None, input_code=False, return_latents=False):
        if input_code:
            codes = x
        else:
            codes = self.encoder(x)
            # residual step
            codes = codes + (self.latent_avg.repeat(codes.shape[0], 1, 1) if latent is None else latent)
        images = self.decoder(codes)
        return (images, codes) if return_latents else images
