// Checks that the role in this container answers, without knowing which of the three it is. This is plain JavaScript without imports,
// because it is started every ten seconds. A process that is alive but can't work isn't restarted: /readyz reports it to Prometheus.
const { API_PORT, KEEPER_PORT, INDEXER_PORT } = process.env
const roles = [
  `${API_PORT || 4020}/healthz`,
  `${KEEPER_PORT || 4021}/healthz`,
  `${INDEXER_PORT || 42069}/health`,
]
const answers = roles.map(async (role) => {
  const { ok } = await fetch(`http://127.0.0.1:${role}`, { signal: AbortSignal.timeout(4_000) })
  if (!ok) throw new Error(`${role} failed`)
})
Promise.any(answers).catch(() => process.exit(1))
