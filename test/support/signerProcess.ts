import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { type Hex, hexToBigInt, hexToNumber } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import type { SignerMessage, SignerMood, SignerProcessOptions } from './signer.ts'

// A signer in a separate process with the interface of web3signer's `eth1`: it serves one chain, ignores the chain id of a
// request, and identifies its clients by the fingerprints of their certificates. The signer misbehaves as the test
// requests.

process.once('disconnect', () => process.exit(0))
const options = JSON.parse(process.argv[2] ?? '{}') as SignerProcessOptions
const accounts = new Map(
  options.keys.map((key) => {
    const account = privateKeyToAccount(key)
    return [account.address.toLowerCase(), account]
  }),
)
let mood: SignerMood = {}
const held = new Set<() => void>()

process.on('message', (message: SignerMood) => {
  mood = message
  for (const release of held) release()
  held.clear()
})

function tell(message: SignerMessage): void {
  process.send?.(message)
}

type Asked = Record<
  'from' | 'to' | 'data' | 'nonce' | 'value' | 'gas' | 'maxFeePerGas' | 'maxPriorityFeePerGas',
  Hex
>

async function sign(asked: Asked): Promise<string> {
  const account = accounts.get(asked.from.toLowerCase())
  if (!account) throw new Error('Signing from account is not an unlocked account')
  const signer = mood.withKey ? privateKeyToAccount(mood.withKey) : account
  const same = {
    chainId: options.chainId,
    to: asked.to,
    data: asked.data,
    nonce: hexToNumber(asked.nonce),
    value: BigInt(mood.value ?? asked.value),
    gas: hexToBigInt(asked.gas),
  }
  const maxFeePerGas = hexToBigInt(asked.maxFeePerGas)
  if (mood.isLegacy) return signer.signTransaction({ ...same, type: 'legacy', gasPrice: maxFeePerGas })
  const maxPriorityFeePerGas = hexToBigInt(asked.maxPriorityFeePerGas)
  return signer.signTransaction({
    ...same,
    type: 'eip1559',
    maxFeePerGas,
    maxPriorityFeePerGas,
    ...mood.changes,
  })
}

async function answer(body: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { id, method, params } = JSON.parse(body)
  const reply = (status: number, answer: object) => {
    response.writeHead(status, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }))
  }
  if (method === 'eth_accounts') return reply(200, { result: [...accounts.keys()] })
  if (method !== 'eth_signTransaction')
    return reply(400, { error: { code: -32_601, message: 'Method not found' } })
  tell({ asked: { ...params[0], authorization: request.headers.authorization ?? '' } })
  if (mood.holds) await new Promise<void>((resolve) => held.add(resolve))
  if (mood.status) return void response.writeHead(mood.status).end('not now')
  if (mood.answers !== undefined) return reply(200, { result: mood.answers })
  if (mood.text !== undefined) return void response.end(mood.text.repeat(mood.times ?? 1))
  try {
    return reply(200, { result: await sign(params[0]) })
  } catch (error) {
    // The answer of web3signer.
    return reply(400, { error: { code: -32_000, message: (error as Error).message } })
  }
}

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { tls } = options
  if (tls?.clients) {
    const { fingerprint256 } = (request.socket as TLSSocket).getPeerCertificate()
    if (!tls.clients.includes(fingerprint256)) return void request.socket.destroy()
  }
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  await answer(Buffer.concat(chunks).toString(), request, response)
}

const listener = (request: IncomingMessage, response: ServerResponse) => {
  serve(request, response).catch(() => response.destroy())
}
const { tls } = options
const server = tls
  ? createHttpsServer(
      {
        cert: readFileSync(tls.certFile),
        key: readFileSync(tls.keyFile),
        requestCert: tls.clients !== undefined,
        rejectUnauthorized: false,
      },
      listener,
    )
  : createHttpServer(listener)
server.listen(options.port, '127.0.0.1')
await once(server, 'listening')
tell({ port: (server.address() as AddressInfo).port })
