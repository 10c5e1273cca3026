import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from 'node:http'
import { Agent as HttpsAgent, request as requestHttps } from 'node:https'
import { createSecureContext } from 'node:tls'
import { scrub } from '@tollkeeper/runtime/log'
import { textOf } from '@tollkeeper/sdk/protocol/fields'
import { type Address, type LocalAccount, numberToHex, type PrivateKeyAccount } from 'viem'
import { toAccount } from 'viem/accounts'
import { SignerError, type SigningAccount, type Transaction } from './signTransaction.ts'

/** The address of a signer, and PEM texts for TLS. */
export type RemoteSignerOptions = {
  /** URL in the form `https://user:password@host/path`. User and password are sent as Basic authorization. */
  url: string
  /** Authorities that may have signed the signer's certificate. They replace the system's authorities. */
  ca?: string | undefined
  /** Our client certificate, and its key. */
  cert?: string | undefined
  key?: string | undefined
  /** Timeout in ms of a whole exchange. Default 5,000. */
  timeoutMs?: number
}

/** A process that holds keys and signs through JSON-RPC. */
export type RemoteSigner = {
  /** Requests a signature. @returns what the signer claims to be the signed transaction, unchecked. */
  sign: (from: Address, transaction: Transaction) => Promise<unknown>
  /** Returns the addresses whose keys the signer has, in lower case; null if it doesn't report them. */
  listAddresses: () => Promise<readonly string[] | null>
}

/** A wallet whose key is in a {@link RemoteSigner}. `signTransaction` checks the signatures. */
export type RemoteAccount = LocalAccount & {
  /** Checks the signer of a chain. @throws {SignerError} if it isn't responding, or doesn't have the wallet's key. */
  check: (chainId: number) => Promise<void>
}

/** A wallet that pays gas: a key in this process, a key of a remote signer, or any viem account that signs by itself. */
export type KeeperAccount = PrivateKeyAccount | RemoteAccount | SigningAccount

const defaultTimeoutMs = 5_000
/** Maximum length of a response in bytes. Nodes accept transactions of 128 KiB, which take twice as many characters in hex. */
const mostBytes = 1_048_576
/** Error code of JSON-RPC 2.0, section 5.1: the method doesn't exist. */
const methodNotFound = -32_601

/**
 * Uses `eth_signTransaction` and `eth_accounts`, which web3signer (`eth1`), op-signer and geth implement.
 *
 * It uses Node's own client because fetch doesn't support certificates. It doesn't follow redirects.
 *
 * @throws TypeError for certificates or a key that aren't PEM.
 */
export function createRemoteSigner({
  url,
  timeoutMs = defaultTimeoutMs,
  ...tls
}: RemoteSignerOptions): RemoteSigner {
  const isEncrypted = new URL(url).protocol === 'https:'
  // Opens a connection for each request, because the signer may close an idle connection just when a request reuses it.
  const secure =
    isEncrypted &&
    new HttpsAgent({ secureContext: createSecureContext({ ...tls, allowPartialTrustChain: true }) })
  const agent = secure || new HttpAgent()
  const request = isEncrypted ? requestHttps : requestHttp

  function post(body: string): Promise<{ status: number; text: string }> {
    return new Promise((resolve, reject) => {
      const signal = AbortSignal.timeout(timeoutMs)
      const fail = (error: unknown) => reject(signal.aborted ? signal.reason : error)
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
      const sent = request(url, { method: 'POST', headers, agent, signal })
      sent.on('error', fail)
      sent.on('response', (response) => {
        readText(response).then((text) => resolve({ status: response.statusCode ?? 0, text }), fail)
      })
      sent.end(body)
    })
  }

  async function call(method: string, params: unknown[]): Promise<unknown> {
    const { status, text } = await post(JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })).catch(
      throwAsSigner,
    )
    const { result, error } = parseAnswer(text)
    if (error !== undefined) throw refusalOf(error)
    if (status === 200) return result
    throw new SignerError(
      status >= 400 && status < 500 ? 'signer_refused' : 'signer_unavailable',
      `the signer answered with HTTP status ${status}`,
    )
  }

  return {
    async sign(from, { to, data, value = 0n, gas, nonce, maxFeePerGas, maxPriorityFeePerGas, chainId }) {
      const result = await call('eth_signTransaction', [
        {
          type: '0x2',
          from,
          to,
          data,
          chainId: numberToHex(chainId),
          nonce: numberToHex(nonce ?? 0),
          value: numberToHex(value),
          gas: numberToHex(gas ?? 0n),
          maxFeePerGas: numberToHex(maxFeePerGas ?? 0n),
          maxPriorityFeePerGas: numberToHex(maxPriorityFeePerGas ?? 0n),
        },
      ])
      // geth returns { raw, tx } instead of the raw transaction.
      return isObject(result) ? result.raw : result
    },
    async listAddresses() {
      const result = await call('eth_accounts', []).catch((error: unknown) => {
        if (error instanceof Refused && error.rpcCode === methodNotFound) return null
        throw error
      })
      if (result === null) return null
      if (!Array.isArray(result)) throw new SignerError('signer_mismatch', 'the signer lists no addresses')
      return result.map((one) => textOf(one).toLowerCase())
    },
  }
}

/** Creates a wallet whose key is in remote signers. @param signerOf returns the signer of a chain. */
export function createRemoteAccount(
  address: Address,
  signerOf: (chainId: number) => RemoteSigner,
): RemoteAccount {
  const no = async (): Promise<never> => {
    throw new SignerError('signer_refused', 'this wallet signs only transactions')
  }
  const account = toAccount({
    address,
    // This result isn't trusted: signTransaction.ts checks it.
    signTransaction: (transaction) => {
      const asked = transaction as Transaction
      return signerOf(asked.chainId).sign(address, asked) as Promise<`0x${string}`>
    },
    signMessage: no,
    signTypedData: no,
  })
  return Object.assign(account, {
    async check(chainId: number) {
      const known = await signerOf(chainId).listAddresses()
      if (known !== null && !known.includes(address.toLowerCase()))
        throw new SignerError('signer_refused', `the signer has no key of ${address}`)
    },
  })
}

class Refused extends SignerError {
  readonly rpcCode: unknown

  constructor(message: string, rpcCode: unknown) {
    super('signer_refused', message)
    this.rpcCode = rpcCode
  }
}

function refusalOf(error: unknown): Refused {
  const { message, code } = isObject(error) ? error : {}
  const words = typeof message === 'string' ? scrub(message).slice(0, 200) : 'it gave no reason'
  return new Refused(
    `the signer refused: ${words} (${typeof code === 'number' ? code : textOf(code).slice(0, 20) || 'no code'})`,
    code,
  )
}

async function readText(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of response) {
    size += (chunk as Buffer).length
    if (size > mostBytes)
      throw new SignerError('signer_mismatch', `the signer's response is longer than ${mostBytes} bytes`)
    chunks.push(chunk as Buffer)
  }
  return Buffer.concat(chunks).toString('utf8')
}

function throwAsSigner(cause: unknown): never {
  if (cause instanceof SignerError) throw cause
  const { name, code } = cause as { name?: string; code?: string }
  const reason = name === 'TimeoutError' ? 'no response in time' : (code ?? name)
  throw new SignerError('signer_unavailable', `the signer is not responding: ${reason}`, { cause })
}

function parseAnswer(text: string): { result?: unknown; error?: unknown } {
  try {
    const answer: unknown = JSON.parse(text)
    return isObject(answer) ? answer : {}
  } catch {
    return {}
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
