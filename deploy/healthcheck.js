// Whether the role in this container answers: whichever of the three it is. Plain JavaScript that imports nothing, since it is
// started every ten seconds. A process that is alive but can't work is told by /readyz, to Prometheus, and not restarted for it.
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
