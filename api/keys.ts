import { readVariable } from '@tollkeeper/runtime/env'
import { isoTime } from '@tollkeeper/sdk/protocol/time'
import { newOperatorKey } from './http/operator.ts'
import { newMacaroonSecret } from './payments/challenge/newMacaroonSecret.ts'
import {
  readReceiptKeys,
  rotateReceiptKeys,
  rotationLeadSeconds,
  writeReceiptKeys,
} from './payments/receipts/keys.ts'

const usage = `Usage: npm run keys -- <command>
  receipt    adds a receipt key to RECEIPT_KEY_FILE; after ${rotationLeadSeconds / 60} minutes the gateway signs with it, without a restart
  operator   prints a new operator's key, and the value of OPERATOR_KEY_HASHES that includes its hash
  macaroon   prints a new macaroon secret, and the values that MACAROON_SECRETS must have, step by step
`

async function main([command, ...flags]: string[]): Promise<number> {
  const isJson = flags.includes('--json')
  const print = (value: object, lines: readonly string[]) =>
    process.stdout.write(`${isJson ? JSON.stringify(value) : lines.join('\n')}\n`)
  if (command === 'receipt') {
    const path = readVariable(process.env, 'RECEIPT_KEY_FILE')
    const before = await readReceiptKeys(path)
    const after = rotateReceiptKeys(before)
    await writeReceiptKeys(path, after)
    const [fresh] = after.keys
    const signsFrom = before === undefined ? null : isoTime(fresh?.signsFrom ?? 0)
    print({ file: path, kid: fresh?.kid, signsFrom }, [
      `${path}: the new key ${fresh?.kid} signs from ${signsFrom ?? 'now on'}`,
    ])
    return 0
  }
  if (command === 'operator') {
    const { key, hash } = newOperatorKey()
    const known = readVariable(process.env, 'OPERATOR_KEY_HASHES') ?? []
    const hashes = [...known.map((one) => one.toString('hex')), hash]
    print({ operatorKey: key, OPERATOR_KEY_HASHES: hashes.join() }, [
      '# Shown only this once:',
      `# ${key}`,
      '# For every api process:',
      `OPERATOR_KEY_HASHES=${hashes.join()}`,
    ])
    return 0
  }
  if (command === 'macaroon') {
    const fresh = newMacaroonSecret()
    const [minting] = readVariable(process.env, 'MACAROON_SECRETS') ?? []
    const current = minting && `${minting.kid}:${Buffer.from(minting.key).toString('hex')}`
    const steps = current ? [`${current},${fresh}`, `${fresh},${current}`] : [fresh]
    const lines = current
      ? [
          '# 1. Set this on every api process, so that all of them also accept macaroons signed with the new secret.',
          `MACAROON_SECRETS=${steps[0]}`,
          '# 2. Once every api process runs with that value, set this one, so that they sign with the new secret.',
          `MACAROON_SECRETS=${steps[1]}`,
          '# 3. Five minutes later, remove the old secret: macaroons that it signed have expired.',
        ]
      : [`MACAROON_SECRETS=${fresh}`]
    print({ MACAROON_SECRETS: steps }, lines)
    return 0
  }
  process.stderr.write(usage)
  return 1
}

process.exitCode = await main(process.argv.slice(2))
