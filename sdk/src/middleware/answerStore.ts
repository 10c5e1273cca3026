import { bytesToHex, concatBytes, encodeUtf8, readUint, writeUint } from '../protocol/bytes.ts'

/**
 * Keeps responses outside of the process, so that they outlive it and several processes can share them. The store receives ciphertext under keys that
 * reveal nothing. It needn't be trusted: a response that the store loses, changes or mixes up counts as not kept.
 *
 * @example
 * import type { AnswerStore } from '@tollkeeper/sdk/fetch'
 *
 * type Redis = {
 *   getBuffer(key: string): Promise<Uint8Array | null>
 *   setex(key: string, seconds: number, value: Uint8Array): Promise<unknown>
 * }
 *
 * export const storeIn = (redis: Redis): AnswerStore => ({
 *   get: async (key) => (await redis.getBuffer(`answer:${key}`)) ?? undefined,
 *   set: async (key, value, seconds) => void (await redis.setex(`answer:${key}`, seconds, value)),
 * })
 */
export type AnswerStore = {
  /** @param key 64 hex digits. */
  get: (key: string) => Promise<Uint8Array | undefined>
  /** Keeps a value for this many seconds. Replaces an earlier value under the same key. */
  set: (key: string, value: Uint8Array, seconds: number) => Promise<void>
}

/** A response in the form in which it is sent and replayed. */
export type KeptAnswer = {
  status: number
  headers: [name: string, value: string][]
  body: Uint8Array<ArrayBuffer>
}

/** Records the outcome of a paid request. Call exactly one of these functions, once. */
export type Keep = {
  maxBytes: number
  /** Keeps the complete response. */
  keep: (answer: KeptAnswer) => void
  /** Records why the response can't be kept. */
  drop: (reason: NotKept) => void
  /** Keeps nothing, because the request failed and its payment is voided. */
  forget: () => void
}

/** Why a response isn't kept. */
export type NotKept =
  | 'too long'
  | 'too slow'
  | 'broken off'
  | 'in an unsupported text encoding'
  | 'an upgrade'
  | 'not kept, because the body of the request is unknown'

/** The record of a served payment: its response and request, or why the response isn't kept. */
export type AnswerEntry =
  | { state: 'kept'; target: string; digest: string; answer: KeptAnswer }
  | { state: 'serving' }
  | { state: 'not_kept'; reason: string }

/** Stores entries by name. The name is derived from the presented payment. */
export type AnswerShelf = {
  find: (name: string) => AnswerEntry | undefined | Promise<AnswerEntry | undefined>
  put: (name: string, entry: AnswerEntry, seconds: number) => void | Promise<void>
  /** Whether other processes also write entries to this storage. */
  isShared: boolean
}

const maxEntries = 10_000

/**
 * Creates the storage in the process's memory. If it is full, it removes the oldest entries.
 *
 * @param maxBytes maximum size of all entries together.
 */
export function createAnswerMemory(maxBytes: number): AnswerShelf {
  const entries = new Map<string, { entry: AnswerEntry; until: number; size: number }>()
  let bytes = 0

  function remove(name: string): void {
    bytes -= entries.get(name)?.size ?? 0
    entries.delete(name)
  }

  return {
    isShared: false,
    find(name) {
      const found = entries.get(name)
      if (!found || found.until > Date.now()) return found?.entry
      remove(name)
      return undefined
    },
    put(name, entry, seconds) {
      remove(name)
      const size = entrySize(name, entry)
      entries.set(name, { entry, until: Date.now() + seconds * 1000, size })
      bytes += size
      for (const [oldest, { until }] of entries) {
        if (bytes <= maxBytes && entries.size <= maxEntries && until > Date.now()) break
        remove(oldest)
      }
    },
  }
}

/** Returns the approximate size of an entry in memory, in bytes. */
export function entrySize(name: string, entry: AnswerEntry): number {
  return 2 * name.length + (entry.state === 'kept' ? sizeOf(entry.answer) + entry.target.length : 0)
}

function sizeOf({ headers, body }: KeptAnswer): number {
  return headers.reduce((sum, [name, value]) => sum + 2 * (name.length + value.length), body.length)
}

/**
 * Encrypts the entries of an external store, so that the store can't read them. It uses AES-GCM with the entry's name as associated data, so that no
 * entry can replace another.
 *
 * @param secret must be as hard to guess as a key: HKDF doesn't make a weak secret stronger.
 */
export function sealAnswers(store: AnswerStore, secret: string): AnswerShelf {
  let keys: Promise<Keys> | undefined

  /** Returns the id under which the store keeps the entry with this name, and the key that encrypts the entry. */
  async function seal(name: string) {
    keys ??= deriveKeys(secret)
    const { sealing, naming } = await keys
    const id = new Uint8Array(await crypto.subtle.sign('HMAC', naming, utf8(name)))
    return { sealing, id, key: bytesToHex(id).slice(2) }
  }

  return {
    isShared: true,
    async find(name) {
      const { sealing, id, key } = await seal(name)
      const sealed = await store.get(key)
      if (sealed === undefined || sealed.length <= ivBytes) return undefined
      const algorithm = { name: 'AES-GCM', iv: sealed.slice(0, ivBytes), additionalData: id }
      try {
        const plain = await crypto.subtle.decrypt(algorithm, sealing, sealed.slice(ivBytes))
        return decode(new Uint8Array(plain))
      } catch {
        // The entry was encrypted with another secret, or was changed, so it counts as not kept.
        return undefined
      }
    },
    async put(name, entry, seconds) {
      const { sealing, id, key } = await seal(name)
      const iv = crypto.getRandomValues(new Uint8Array(ivBytes))
      const plain = encode(entry, Date.now() + seconds * 1000)
      const sealed = await crypto.subtle.encrypt({ name: 'AES-GCM', iv, additionalData: id }, sealing, plain)
      await store.set(key, concatBytes(iv, new Uint8Array(sealed)), seconds)
    },
  }
}

type Keys = { sealing: CryptoKey; naming: CryptoKey }

const ivBytes = 12

async function deriveKeys(secret: string): Promise<Keys> {
  const { subtle } = crypto
  const base = await subtle.importKey('raw', utf8(secret), 'HKDF', false, ['deriveKey'])
  const hkdf = { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array() }
  const [aes, hmac] = [
    { name: 'AES-GCM', length: 256 },
    { name: 'HMAC', hash: 'SHA-256', length: 256 },
  ]
  const [sealing, naming] = await Promise.all([
    subtle.deriveKey({ ...hkdf, info: utf8('tollkeeper answers') }, base, aes, false, ['encrypt', 'decrypt']),
    subtle.deriveKey({ ...hkdf, info: utf8('tollkeeper answer names') }, base, hmac, false, ['sign']),
  ])
  return { sealing, naming }
}

/** Encodes a text into a separate buffer, because Web Crypto rejects buffers that may be shared. */
export function utf8(text: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(encodeUtf8(text))
}

const lengthBytes = 4

/** Encodes an entry: the length of the JSON, then the JSON, then the response's body. */
function encode(entry: AnswerEntry, until: number): Uint8Array<ArrayBuffer> {
  const { body, ...rest } = entry.state === 'kept' ? entry.answer : { body: new Uint8Array() }
  const head = encodeUtf8(
    JSON.stringify({ ...entry, ...(entry.state === 'kept' && { answer: rest }), until }),
  )
  const length = new Uint8Array(lengthBytes)
  writeUint(length, 0, lengthBytes, BigInt(head.length))
  return concatBytes(length, head, body)
}

/** Decodes an entry. The entry was encrypted by this code, so its form is known. */
function decode(bytes: Uint8Array<ArrayBuffer>): AnswerEntry | undefined {
  const end = lengthBytes + Number(readUint(bytes, 0, lengthBytes))
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(lengthBytes, end))) as AnswerEntry & {
    until: number
  }
  // The store has kept the entry for longer than requested, so ignore it.
  if (head.until <= Date.now()) return undefined
  if (head.state === 'kept') head.answer.body = bytes.slice(end)
  return head
}
