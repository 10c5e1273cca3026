import { randomBytes } from 'node:crypto'
import { readVariable } from '@tollkeeper/runtime/env'
import { isoTime } from '@tollkeeper/sdk/protocol/time'
import { newOperatorKey } from './http/operator.ts'
import {
  readReceiptKeys,
  rotateReceiptKeys,
  rotationLeadSeconds,
  writeReceiptKeys,
} from './payments/receipts/keys.ts'

const usage = `Usage: npm run keys -- <command>
  receipt    adds a receipt key to RECEIPT_KEY_FILE; it signs in ${rotationLeadSeconds / 60} minutes, no restart needed
  operator   prints a new key for the operator's views, and the value of OPERATOR_KEY_HASHES with it
  macaroon   prints the values of MACAROON_SECRETS that bring a new secret in, step by step
`

async function main([command]: string[]): Promise<number> {
  if (command === 'receipt') {
    const path = readVariable(process.env, 'RECEIPT_KEY_FILE')
    const before = await readReceiptKeys(path)
    const after = rotateReceiptKeys(before)
    await writeReceiptKeys(path, after)
    const when = before === undefined ? 'now' : isoTime(after.keys[0]?.signsFrom ?? 0)
    process.stdout.write(`${path}: ${after.keys[0]?.kid} signs from ${when}\n`)
    return 0
  }
  if (command === 'operator') {
    const { key, hash } = newOperatorKey()
    const known = readVariable(process.env, 'OPERATOR_KEY_HASHES') ?? []
    const hashes = [...known.map((one) => one.toString('hex')), hash]
    process.stdout.write(
      `# Shown this once:\n# ${key}\n# For every api process:\nOPERATOR_KEY_HASHES=${hashes.join()}\n`,
    )
    return 0
  }
  if (command === 'macaroon') {
    const fresh = `m${new Date().toISOString().replace(/\D/g, '').slice(0, 14)}:${randomBytes(32).toString('hex')}`
    const [minting] = readVariable(process.env, 'MACAROON_SECRETS') ?? []
    const current = minting && `${minting.kid}:${Buffer.from(minting.key).toString('hex')}`
    const lines = current
      ? [
          '# 1. For every api process: the new secret verifies.',
          `MACAROON_SECRETS=${current},${fresh}`,
          '# 2. Once all of them run with that: it mints.',
          `MACAROON_SECRETS=${fresh},${current}`,
          '# 3. Five minutes later the old one may go.',
        ]
      : [`MACAROON_SECRETS=${fresh}`]
    process.stdout.write(`${lines.join('\n')}\n`)
    return 0
  }
  process.stderr.write(usage)
  return 1
}

process.exitCode = await main(process.argv.slice(2))
