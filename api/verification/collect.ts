/**
 * Collects the keys asked for in one turn of the event loop, so that one question serves them all.
 *
 * @returns a loader of single keys for {@link createCache}.
 */
export function collect<K, V>(
  load: (keys: K[]) => Promise<Map<K, V>>,
  {
    renewalDelayMs = 0,
    maxKeys,
  }: {
    /** For how long keys that nobody waits for gather. */
    renewalDelayMs?: number
    /** Keys a question, at most. */
    maxKeys: number
  },
): (key: K, isAwaited?: boolean) => Promise<V> {
  type Group = { keys: Set<K>; values: Promise<Map<K, V>>; send: () => void }
  const open: { awaited?: Group | undefined; renewed?: Group | undefined } = {}

  function openGroup(kind: 'awaited' | 'renewed'): Group {
    const keys = new Set<K>()
    let send = () => {}
    const values = new Promise<void>((resolve) => {
      send = resolve
    }).then(() => {
      if (open[kind] === group) open[kind] = undefined
      return load([...keys])
    })
    const group = { keys, values, send }
    if (kind === 'awaited') setImmediate(send)
    else setTimeout(send, renewalDelayMs).unref()
    open[kind] = group
    return group
  }

  return async (key, isAwaited = true) => {
    const kind = isAwaited ? 'awaited' : 'renewed'
    const group = open[kind] ?? openGroup(kind)
    group.keys.add(key)
    if (group.keys.size >= maxKeys) {
      open[kind] = undefined
      group.send()
    }
    return (await group.values).get(key) as V
  }
}
