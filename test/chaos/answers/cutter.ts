import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** The points at which a request's connection can be cut, as named in its `x-cut` header. */
export const cuts = [
  /** Cut before any part of the request arrives. */
  'before',
  /** Cut after half of the request's header has arrived. */
  'header',
  /** Cut after the request's header and half of its body have arrived. */
  'body',
  /** Cut directly after the whole request has arrived. */
  'sent',
  /** Cut before any part of the answer arrives. */
  'answered',
  /** Cut after half of the answer's header has arrived. */
  'answer-header',
  /** Cut after the answer's header and half of its body have arrived. */
  'answer-body',
  /** Never cut: the connection stays open, but the answer doesn't arrive. */
  'stalled',
] as const
export type Cut = (typeof cuts)[number]

export type Cutter = { url: string; port: number; close: () => Promise<void> }

/** A TCP proxy that cuts the connections of the requests that ask for it. */
export async function startCutter(targetPort: () => number): Promise<Cutter> {
  const sockets = new Set<Socket>()
  const server = createServer((client) => {
    const target = connect(targetPort(), '127.0.0.1')
    let cut: Cut | undefined
    const end = () => {
      client.destroy()
      target.destroy()
    }
    for (const socket of [client, target]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.once('close', () => {
        sockets.delete(socket)
        end()
      })
    }
    client.on('data', (chunk) => {
      const asked = /\r\nx-cut: ([\w-]+)\r\n/i.exec(chunk.toString('latin1'))?.[1] as Cut | undefined
      if (asked) {
        cut = asked
        const headEnd = chunk.indexOf('\r\n\r\n') + 4
        if (cut === 'before') return end()
        if (cut === 'header') return void target.write(chunk.subarray(0, headEnd >> 1), end)
        if (cut === 'body' && chunk.length > headEnd)
          return void target.write(chunk.subarray(0, headEnd + ((chunk.length - headEnd) >> 1)), end)
        if (cut === 'sent') return void target.write(chunk, () => setTimeout(end, 2))
      } else if (cut === 'body') return void target.write(chunk.subarray(0, chunk.length >> 1), end)
      target.write(chunk)
    })
    target.on('data', (chunk) => {
      const headEnd = chunk.indexOf('\r\n\r\n') + 4
      if (cut === undefined) return void client.write(chunk)
      if (cut === 'stalled') return
      if (cut === 'answer-header') return void client.write(chunk.subarray(0, headEnd >> 1), end)
      if (cut !== 'answer-body') return end()
      if (headEnd < 4 || chunk.length > headEnd)
        client.write(
          chunk.subarray(0, Math.max(headEnd, 0) + ((chunk.length - Math.max(headEnd, 0)) >> 1)),
          end,
        )
      else client.write(chunk)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    close: async () => {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}
