import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

export type CutProxy = {
  port: number
  /** Breaks every connection, and refuses new ones until `mend`. */
  cut: () => void
  /**
   * Keeps old and new connections open, but forwards nothing until `mend`, as if the host had silently disappeared.
   */
  stall: () => void
  /**
   * Simulates a failover without a TCP reset: forwards nothing over existing connections, not even their end, but
   * forwards new connections.
   */
  abandon: () => void
  /**
   * Closes the server's side of abandoned connections, as the server's keepalives would if the other host were really gone.
   */
  bury: () => void
  /**
   * Forwards `count` messages that contain `text` to the server, and breaks their connections when the server responds: the
   * request is executed, but its sender never learns of it.
   */
  loseAnswersTo: (text: string, count: number) => void
  /**
   * Forwards a message that contains `text` to the server, and then stops forwarding over that connection, as if the host disappeared
   * in the middle of a statement. Resolves once that has happened.
   */
  abandonAfter: (text: string) => Promise<void>
  /**
   * Breaks one connection now, and another one each time that one of the next `count` sessions starts. So a pool loses a connection
   * while it is still replacing the connection that it lost before.
   */
  cutBesideStarts: (count: number) => void
  mend: () => void
  close: () => Promise<void>
}

/** Starts a TCP proxy that can be cut, so that the server behind it disappears and comes back. */
export async function startCutProxy(host: string, port: number): Promise<CutProxy> {
  const sockets = new Set<Socket>()
  const abandoned = new Set<Socket>()
  const targets = new Set<Socket>()
  let isCut = false
  let isStalled = false
  let starts = 0
  let lost = { text: '', count: 0 }
  let last: { text: string; happened: () => void } | undefined
  const abandon = (socket: Socket) => {
    abandoned.add(socket)
    socket.pause()
  }
  const clients = new Set<Socket>()
  const cutOne = (starting?: Socket) => [...clients].find((one) => one !== starting)?.destroy()
  const server = createServer((client) => {
    if (isCut) return void client.destroy()
    clients.add(client)
    client.once('close', () => clients.delete(client))
    client.once('data', () => {
      if (starts === 0) return
      starts--
      cutOne(client)
    })
    const target = connect(port, host)
    targets.add(target)
    target.once('close', () => targets.delete(target))
    for (const [one, other] of [
      [client, target],
      [target, client],
    ] as const) {
      sockets.add(one)
      one.on('error', () => {})
      one.once('close', () => {
        sockets.delete(one)
        // Don't close the connection to the server when an abandoned client closes.
        if (!abandoned.has(other)) other.destroy()
      })
      one.pipe(other)
      if (isStalled) one.pause()
    }
    client.on('data', (message) => {
      if (last !== undefined && message.includes(last.text)) {
        for (const socket of [client, target]) abandon(socket)
        last.happened()
        last = undefined
      }
      if (lost.count === 0 || !message.includes(lost.text)) return
      lost.count--
      target.unpipe(client)
      target.once('data', () => client.destroy())
      // A stream that isn't piped must be resumed to flow.
      target.resume()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = () => {
    isCut = true
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: (server.address() as AddressInfo).port,
    cut,
    stall: () => {
      isStalled = true
      for (const socket of sockets) socket.pause()
    },
    abandon: () => sockets.forEach(abandon),
    bury: () => {
      for (const target of targets) if (abandoned.has(target)) target.destroy()
    },
    abandonAfter: (text) => {
      const { promise, resolve } = Promise.withResolvers<void>()
      last = { text, happened: resolve }
      return promise
    },
    cutBesideStarts: (count) => {
      starts = count
      cutOne()
    },
    loseAnswersTo: (text, count) => {
      lost = { text, count }
    },
    mend: () => {
      lost = { text: '', count: 0 }
      isCut = false
      isStalled = false
      for (const socket of sockets) if (!abandoned.has(socket)) socket.resume()
    },
    close: async () => {
      cut()
      server.close()
      await once(server, 'close')
    },
  }
}
