import {
  createPrivateKey,
  generateKeyPairSync,
  type JsonWebKey,
  type KeyObject,
  randomBytes,
} from 'node:crypto'
import { link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { z } from 'zod'

/** The key that signs receipts. */
export type ReceiptKey = {
  kid: string
  privateKey: KeyObject
  /** The JWS protected header, base64url. */
  protectedHeader: string
}

/** What `/.well-known/jwks.json` publishes of a key. */
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
  current: ReceiptKey
  /** Current and retired: what was signed with any of them verifies. */
  jwks: { keys: PublicReceiptKey[] }
}

const coordinate = z.string().regex(/^[A-Za-z0-9_-]{43}$/)

/** The key file: a JWK set with private parts, the current key first. Retired keys have no need for a `d`. */
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
      }),
    )
    .min(1),
})
export type ReceiptKeyFile = z.infer<typeof keyFile>

/**
 * Reads the receipt keys from a file.
 *
 * @param createIfMissing makes a first key where there is no file: for development, where losing it loses nothing.
 * @throws Error that names the file and what is wrong with it, and never repeats its content.
 */
export async function loadReceiptKeys(path: string, createIfMissing: boolean): Promise<ReceiptKeys> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ENOENT'
    if (!isMissing || !createIfMissing) {
      throw new Error(
        `RECEIPT_KEY_FILE: expected a readable JWK set at ${path}; npx tollkeeper keys rotate receipt makes one`,
        {
          cause: error,
        },
      )
    }
    await createReceiptKeys(path)
    text = await readFile(path, 'utf8')
  }
  return toReceiptKeys(parseReceiptKeys(text, path))
}

export function parseReceiptKeys(text: string, path: string): ReceiptKeyFile {
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
      `RECEIPT_KEY_FILE: ${path}: ${issue?.path.join('.')} is not as expected for an ES256 JWK set`,
    )
  }
  return parsed.data
}

export function toReceiptKeys({ keys }: ReceiptKeyFile): ReceiptKeys {
  const [current] = keys
  if (current?.d === undefined) throw new Error('RECEIPT_KEY_FILE: its first key has no private part (d)')
  return {
    current: {
      kid: current.kid,
      privateKey: createPrivateKey({ key: current as JsonWebKey, format: 'jwk' }),
      protectedHeader: Buffer.from(JSON.stringify({ alg: 'ES256', typ: 'JWT', kid: current.kid })).toString(
        'base64url',
      ),
    },
    jwks: {
      keys: keys.map(({ kty, crv, x, y, kid }) => ({ kty, crv, x, y, kid, use: 'sig', alg: 'ES256' })),
    },
  }
}

/** A key file whose current key is new. The retired ones stay for verification and lose their private parts. */
export function rotateReceiptKeys(file: ReceiptKeyFile | undefined): ReceiptKeyFile {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const { x, y, d } = privateKey.export({ format: 'jwk' })
  const kid = `receipt-${randomBytes(8).toString('hex')}`
  const fresh = { kty: 'EC', crv: 'P-256', kid, x: x as string, y: y as string, d: d as string } as const
  const retired = (file?.keys ?? []).map(({ d: _, ...publicKey }) => publicKey)
  return { keys: [fresh, ...retired] }
}

/** Makes the first key file, unless another process was faster: then its one stays. */
async function createReceiptKeys(path: string): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`
  await mkdir(dirname(path), { recursive: true })
  await writeFile(temporary, serialize(rotateReceiptKeys(undefined)), { mode: 0o600 })
  try {
    await link(temporary, path)
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error
  } finally {
    await rm(temporary)
  }
}

function serialize(file: ReceiptKeyFile): string {
  return `${JSON.stringify(file, null, 2)}\n`
}

/** Writes a key file that only its owner can read; a reader sees the old one or the new one, nothing between. */
export async function writeReceiptKeys(path: string, file: ReceiptKeyFile): Promise<void> {
  await mkdir(dirname(path), { recursive: true })
  const temporary = `${path}.${process.pid}.tmp`
  await writeFile(temporary, serialize(file), { mode: 0o600 })
  await rename(temporary, path)
}
