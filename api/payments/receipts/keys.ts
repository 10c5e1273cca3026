import {
  createPrivateKey,
  generateKeyPairSync,
  type JsonWebKey,
  type KeyObject,
  randomBytes,
} from 'node:crypto'
import { link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { z } from 'zod'

export type ReceiptKey = {
  kid: string
  privateKey: KeyObject
  /** The JWS protected header, base64url. */
  protectedHeader: string
}

/** A key in `/.well-known/jwks.json`. */
export type PublicReceiptKey = {
  kty: 'EC'
  crv: 'P-256'
  x: string
  y: string
  kid: string
  use: 'sig'
  alg: 'ES256'
}

export type ReceiptKeys = {
  /** The newest key that may already sign. */
  readonly current: ReceiptKey
  /** Future, current and retired keys: receipts signed by any of them verify. */
  readonly jwks: { keys: PublicReceiptKey[] }
  /** Replaces the keys immediately with those of another file. */
  replace(file: ReceiptKeyFile): void
}

const coordinate = z.string().regex(/^[A-Za-z0-9_-]{43}$/)

/** The key file: a JWK set with private parts, newest key first. Retired keys have no private part. */
const keyFile = z.object({
  keys: z
    .array(
      z.object({
        kty: z.literal('EC'),
        crv: z.literal('P-256'),
        kid: z.string().min(1),
        x: coordinate,
        y: coordinate,
        d: coordinate.optional(),
        /** Unix seconds from which the key signs. It is published before that, so that every verifier can find it. */
        signsFrom: z.int().optional(),
      }),
    )
    .min(1),
})
export type ReceiptKeyFile = z.infer<typeof keyFile>

/** Delay in seconds until a new key signs. By then every process has read the key, and every JWKS that was cached without the key has expired. */
export const rotationLeadSeconds = 600

/** Time in seconds for which a JWKS may be cached. */
export const jwksMaxAgeSeconds = 300

/**
 * Reads the receipt keys from a file.
 *
 * @param createIfMissing creates a first key if there is no file; for development, where losing the key does no harm.
 * @throws Error that names the file and its fault, without repeating its content.
 */
export async function loadReceiptKeys(path: string, createIfMissing: boolean): Promise<ReceiptKeys> {
  let file = await readReceiptKeys(path)
  if (file === undefined) {
    if (!createIfMissing) {
      throw new Error(
        `RECEIPT_KEY_FILE: ${path} does not exist. To create it: ${ownCommand} keys rotate receipt`,
      )
    }
    await createReceiptKeys(path)
    file = await readReceiptKeys(path)
  }
  return toReceiptKeys(file as ReceiptKeyFile)
}

/** @returns undefined if there is no such file. */
export async function readReceiptKeys(path: string): Promise<ReceiptKeyFile | undefined> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw new Error(`RECEIPT_KEY_FILE: ${path} could not be read`, { cause: error })
  }
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    throw new Error(`RECEIPT_KEY_FILE: ${path} is not JSON`)
  }
  const parsed = keyFile.safeParse(json)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    throw new Error(
      `RECEIPT_KEY_FILE: ${path} is not an ES256 JWK set: ${issue?.path.join('.')} is missing or wrong`,
    )
  }
  return parsed.data
}

/** @param now returns Unix milliseconds; decides which key signs. */
export function toReceiptKeys(first: ReceiptKeyFile, now: () => number = Date.now): ReceiptKeys {
  let state = parseKeys(first)
  return {
    get current() {
      const seconds = now() / 1000
      const signer = state.signers.find(({ signsFrom }) => signsFrom <= seconds) ?? state.signers.at(-1)
      return (signer as (typeof state.signers)[number]).key
    },
    get jwks() {
      return state.jwks
    },
    replace(file) {
      state = parseKeys(file)
    },
  }
}

function parseKeys({ keys }: ReceiptKeyFile) {
  const signers = keys
    .filter(({ d }) => d !== undefined)
    .map((jwk) => ({ signsFrom: jwk.signsFrom ?? 0, key: toSigner(jwk) }))
  if (signers.length === 0) throw new Error('RECEIPT_KEY_FILE: none of its keys has a private part (d)')
  return {
    signers,
    jwks: {
      keys: keys.map(
        ({ kty, crv, x, y, kid }): PublicReceiptKey => ({ kty, crv, x, y, kid, use: 'sig', alg: 'ES256' }),
      ),
    },
  }
}

function toSigner({ kty, crv, x, y, d, kid }: ReceiptKeyFile['keys'][number]): ReceiptKey {
  const header = JSON.stringify({ alg: 'ES256', typ: 'JWT', kid })
  return {
    kid,
    privateKey: createPrivateKey({ key: { kty, crv, x, y, d } as JsonWebKey, format: 'jwk' }),
    protectedHeader: Buffer.from(header).toString('base64url'),
  }
}

/**
 * Creates a key file with a new key. The key that signs until then keeps its private part. Older keys stay for verification, without their
 * private parts.
 *
 * @param file undefined: creates the first key, which signs immediately
 * @param now Unix seconds
 */
export function rotateReceiptKeys(
  file: ReceiptKeyFile | undefined,
  now = Math.floor(Date.now() / 1000),
): ReceiptKeyFile {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const { x, y, d } = privateKey.export({ format: 'jwk' }) as Record<'x' | 'y' | 'd', string>
  const kid = `receipt-${randomBytes(8).toString('hex')}`
  const fresh = { kty: 'EC', crv: 'P-256', kid, x, y, d } as const
  if (file === undefined) return { keys: [fresh] }

  const signing = file.keys.findIndex((key) => key.d !== undefined && (key.signsFrom ?? 0) <= now)
  const kept = file.keys.map((key, index) => {
    if (index <= signing) return key
    const { d: _, ...retired } = key
    return retired
  })
  return { keys: [{ ...fresh, signsFrom: now + rotationLeadSeconds }, ...kept] }
}

/** Writes a key file that only its owner can read. A reader sees either the old or the new file, never a partial file. */
export async function writeReceiptKeys(path: string, file: ReceiptKeyFile): Promise<void> {
  const temporary = await writeBeside(path, file)
  await rename(temporary, path)
}

/** Creates the first key file. If another process creates it at the same time, that process's file is kept. */
async function createReceiptKeys(path: string): Promise<void> {
  const temporary = await writeBeside(path, rotateReceiptKeys(undefined))
  try {
    await link(temporary, path)
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error
  } finally {
    await rm(temporary)
  }
}

async function writeBeside(path: string, file: ReceiptKeyFile): Promise<string> {
  // The name contains random bytes instead of the process id, because two containers that share a folder may both be process 1.
  const temporary = `${path}.${randomBytes(8).toString('hex')}.tmp`
  await mkdir(dirname(path), { recursive: true })
  await writeFile(temporary, `${JSON.stringify(file, null, 2)}\n`, { mode: 0o600 })
  return temporary
}
