/** A CPU profile of another Node process's main thread, taken through its inspector, by area. */

type CallFrame = { functionName: string; url: string }
type Profile = {
  nodes: { id: number; callFrame: CallFrame; children?: number[] }[]
  samples: number[]
  timeDeltas: number[]
}

const samplingIntervalUs = 200

/** Profiles the process while `work` runs. */
export async function profile(inspectorUrl: string, work: () => Promise<void>): Promise<Profile> {
  const socket = new WebSocket(inspectorUrl)
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve, { once: true })
    socket.addEventListener('error', reject, { once: true })
  })
  const waiting = new Map<number, (result: unknown) => void>()
  socket.addEventListener('message', ({ data }) => {
    const { id, result } = JSON.parse(String(data)) as { id: number; result: unknown }
    waiting.get(id)?.(result)
  })
  let sent = 0
  const send = (method: string, params = {}) =>
    new Promise<unknown>((resolve) => {
      waiting.set(++sent, resolve)
      socket.send(JSON.stringify({ id: sent, method, params }))
    })
  await send('Profiler.enable')
  await send('Profiler.setSamplingInterval', { interval: samplingIntervalUs })
  await send('Profiler.start')
  await work()
  const { profile } = (await send('Profiler.stop')) as { profile: Profile }
  socket.close()
  return profile
}

/** The first of these that a frame matches, from the innermost outwards, is the area that its time counts for. */
const areas: [name: string, pattern: RegExp][] = [
  ['two public keys recovered, where no thread does it', /node_modules\/secp256k1/],
  ['receipt: claims, ES256', /api\/receipts|crypto\/sig/],
  ['macaroon: read, six HMACs', /protocol\/macaroon|api\/hmac/],
  [
    'digests and nonces (keccak256)',
    /protocol\/eip3009|protocol\/challenge|keccak256|hash-wasm|payerSignatures/,
  ],
  ['payloads read and checked', /protocol\/payload|checkPayment/],
  ['balances and codes from the chain', /node_modules\/viem|deps\/undici|chainReads|payers\.ts/],
  ['Postgres client', /node_modules\/postgres|acceptPayments|groupCommit|exposure\.ts/],
  ['limits, counters, metrics', /prom-client|api\/middleware|keeper\/http|api\/usage/],
  ['body against its schema (zod)', /node_modules\/zod|api\/routes/],
  ['verification: the rest', /api\//],
  ['Hono', /node_modules\/hono\//],
  [
    'HTTP server',
    /node-server|node:_http|node:net|node:internal\/(?:streams|stream_base|timers|http)|node:events/,
  ],
]
const rest = 'Node: promises, sockets, the rest'

/** Shares of the busy time by area; they sum to 1. */
export function sharesByArea({ nodes, samples, timeDeltas }: Profile): Map<string, number> {
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id])))
  const areaOf = (leaf: number): string | undefined => {
    const name = byId.get(leaf)?.callFrame.functionName
    if (name === '(idle)') return undefined
    if (name === '(garbage collector)') return 'garbage collector'
    for (let id: number | undefined = leaf; id !== undefined; id = parents.get(id)) {
      const frame = byId.get(id)?.callFrame
      const area = areas.find(([, pattern]) => frame !== undefined && pattern.test(frame.url))
      if (area !== undefined) return area[0]
    }
    return rest
  }
  const times = new Map<string, number>()
  let total = 0
  samples.forEach((leaf, index) => {
    const area = areaOf(leaf)
    if (area === undefined) return
    const delta = timeDeltas[index] ?? 0
    total += delta
    times.set(area, (times.get(area) ?? 0) + delta)
  })
  return new Map([...times].sort(([, a], [, b]) => b - a).map(([area, time]) => [area, time / total]))
}
