import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

export type CutProxy = {
  port: number
  /** Breaks every connection, and refuses new ones until `mend`. */
  cut: () => void
  /** Lets connections stand, old ones and new ones, and carries nothing until `mend`: a host that is gone without a word. */
  stall: () => void
  /** Carries nothing over the connections that stand, not even their end, and goes on with new ones: a failover without a reset. */
  abandon: () => void
  /** Ends for the server what was abandoned, as its keepalives would where the other host is really gone. */
  bury: () => void
  /**
   * Carries a number of messages that hold `text` to the server, and breaks their connections when it answers: what was asked
   * is done, and who asked doesn't hear of it.
   */
  loseAnswersTo: (text: string, count: number) => void
  /**
   * Carries what holds `text` to the server, and then nothing over that connection: its host is gone within a statement.
   * Resolves once that has happened.
   */
  abandonAfter: (text: string) => Promise<void>
  /** Breaks one connection, and then one more as each of the next `count` sessions starts: a pool is replaced by then, and again. */
  cutBesideStarts: (count: number) => void
  mend: () => void
  close: () => Promise<void>
}

/** A TCP proxy that can be cut: what stands behind it is gone, and comes back. */
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
        // Nobody tells the server of a client that is gone for it.
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
      // A stream without a pipe stands still.
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
