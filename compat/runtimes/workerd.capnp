using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "main", worker = .shop),
    # Without this service a Worker can't reach addresses of this machine.
    (name = "internet", network = (allow = ["private"])),
  ],
  sockets = [(name = "http", http = (), service = "main")],
);

const shop :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = "2026-11-01",
  bindings = [
    (name = "GATEWAY_URL", fromEnvironment = "GATEWAY_URL"),
    (name = "PROVIDER_ID", fromEnvironment = "PROVIDER_ID"),
    (name = "PROVIDER_API_KEY", fromEnvironment = "PROVIDER_API_KEY"),
    (name = "NETWORK", fromEnvironment = "NETWORK"),
    (name = "WALLET_PRIVATE_KEY", fromEnvironment = "WALLET_PRIVATE_KEY"),
  ],
);
