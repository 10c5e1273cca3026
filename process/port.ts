import { createServer } from 'node:net'

export const loopback = '127.0.0.1'

/** A port on loopback that nothing listens on at this moment. */
export async function freePort(): Promise<number> {
  return listenOnce(0)
}

/** True if `port` on loopback can be listened on. */
export async function isPortFree(port: number): Promise<boolean> {
  return listenOnce(port).then(
    () => true,
    () => false,
  )
}

function listenOnce(port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen({ port, host: loopback, exclusive: true }, () => {
      const address = server.address()
      server.close(() => {
        if (address && typeof address === 'object') resolve(address.port)
        else reject(new Error('listening on loopback gave no port'))
      })
    })
  })
}
