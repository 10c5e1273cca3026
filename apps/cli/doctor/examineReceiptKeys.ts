import { stat } from 'node:fs/promises'
import {
  type ReceiptKeyFile,
  readReceiptKeys,
  rotationLeadSeconds,
  toReceiptKeys,
} from '@tollkeeper/api/payments/receipts/keys'
import { type Environment, readVariable } from '@tollkeeper/runtime/env'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { isoSeconds } from '@tollkeeper/sdk/protocol/time'
import { type Check, fail, ok, reasonOf, warn } from './check.ts'
import type { Published } from './examinePublicUrl.ts'

const receiptKeysCheck = 'receipt keys'

/** The receipt keys of this environment, or the reason why they can't be read. */
export type LocalKeys =
  | { path: string; file: ReceiptKeyFile; currentKid: string; isOpenToOthers: boolean }
  | { check: Check }

/** Reads the file of receipt keys. */
export async function readLocalKeys(env: Environment): Promise<LocalKeys> {
  const path = readVariable(env, 'RECEIPT_KEY_FILE')
  try {
    const file = await readReceiptKeys(path)
    if (file === undefined) {
      const found = `no file ${path} (RECEIPT_KEY_FILE)`
      const advice = `${ownCommand} keys rotate receipt --file ${path}`
      // Only the api needs the keys. If the variable isn't set, this may be the environment of another process, so don't fail.
      if (!env.RECEIPT_KEY_FILE) return { check: { name: receiptKeysCheck, status: 'skip', found } }
      return { check: fail(receiptKeysCheck, found, advice) }
    }
    const { kid } = toReceiptKeys(file).current
    // Windows has no file modes.
    const { mode } = await stat(path)
    const isOpenToOthers = process.platform !== 'win32' && (mode & 0o077) !== 0
    return { path, file, currentKid: kid, isOpenToOthers }
  } catch (error) {
    const advice =
      "make the file readable for the api's user, or restore it from the backup: only these keys verify old receipts"
    return { check: fail(receiptKeysCheck, reasonOf(error), advice) }
  }
}

/**
 * Checks whether the current signing key and the next one are published.
 *
 * @param now Unix seconds
 */
export function examineReceiptKeys(
  local: LocalKeys,
  published: Published,
  now = Math.floor(Date.now() / 1_000),
): Check {
  if ('check' in local) return local.check
  const { path, file, currentKid, isOpenToOthers } = local
  const kids = published?.keys.map(({ kid }) => kid)
  const signers = file.keys.filter(({ d }) => d !== undefined)
  const next = signers.find(({ signsFrom = 0 }) => signsFrom > now)
  const plan = next ? `, ${next.kid} signs from ${isoSeconds(next.signsFrom ?? 0)}` : ''
  const found = `${currentKid} signs; ${path} has ${file.keys.length} public keys${plan}`
  const unread =
    'an api process reads another RECEIPT_KEY_FILE: give every process the same file, on each host'
  if (kids && !kids.includes(currentKid))
    return fail(receiptKeysCheck, `${found}; PUBLIC_URL doesn't publish ${currentKid}`, unread)
  const forgotten = kids && file.keys.filter(({ kid }) => !kids.includes(kid)).map(({ kid }) => kid)
  if (forgotten && forgotten.length > 0) {
    const soon = next !== undefined && forgotten.includes(next.kid)
    const judge = soon && (next.signsFrom ?? 0) - now < rotationLeadSeconds / 2 ? fail : warn
    return judge(receiptKeysCheck, `${found}; PUBLIC_URL doesn't publish ${forgotten.join(', ')}`, unread)
  }
  if (isOpenToOthers) {
    const open = `${found}; other users of this host can read the file`
    return warn(receiptKeysCheck, open, `chmod 400 ${path}: anyone with a key can sign receipts in your name`)
  }
  const compared = kids ? ', and PUBLIC_URL publishes all of them' : ''
  return ok(receiptKeysCheck, `${found}${compared}`)
}
