import { createWriteStream, readFileSync } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { findDeployments } from '@tollkeeper/chain/deploymentsFile'
import { type AuditProgress, audit } from '@tollkeeper/sdk/audit/audit'
import type { AuditReport } from '@tollkeeper/sdk/audit/report'
import { isSound } from '@tollkeeper/sdk/audit/summary'
import { type Deployments, parseDeployments } from '@tollkeeper/sdk/protocol/deployments'
import type { Address } from 'viem'
import { CliError, exitStatus } from '../terminal/cliError.ts'
import { createProgressBar } from '../terminal/progressBar.ts'
import { readKeys } from './readKeys.ts'
import { readReceipts } from './readReceipts.ts'
import { renderCsv, renderJson, renderReport } from './render.ts'

export type AuditFlags = {
  receipts: string
  rpc: string[]
  jwks?: string
  issuer?: string
  /** If set, only tab lines of this provider are accepted. */
  provider?: string
  /** Unix seconds: the first second of the month, and the first second of the next month. */
  month?: { from: bigint; to: bigint }
  wallet?: Address[]
  from?: bigint
  to?: bigint
  fromBlock?: bigint
  confirmations?: number
  deployments?: string
  allowPending?: boolean
  json?: boolean
  csv?: string
}

const labels: Record<AuditProgress['step'], string> = {
  signatures: 'Signatures',
  chain: 'On chain',
  wallet: 'Transfers of the wallet',
}

/** @returns the exit status */
export async function runAudit(flags: AuditFlags): Promise<number> {
  const lines = await readReceipts(flags.receipts)
  const [receipts, tabLines] = [lines.receipts, lines.tabLines].map((list) => list.map(({ jws }) => jws)) as [
    string[],
    string[],
  ]
  const signed = [...receipts, ...tabLines]
  if (signed.length === 0 && !flags.wallet)
    throw new CliError('no_receipts', `${flags.receipts} holds no receipts`)
  // With --wallet and no receipts, there is no signature to check.
  const keys = signed.length > 0 ? await readKeys(flags.jwks, signed) : undefined
  if (keys?.isSelfNamed) {
    process.stderr.write(
      `Keys: ${keys.source}, named by the receipts themselves; use --jwks to pass keys that you trust\n`,
    )
  }
  if (flags.from !== undefined && flags.to !== undefined && flags.from > flags.to) {
    throw new CliError('invalid_date_range', '--from is after --to')
  }
  const { issuer, provider, wallet, month, fromBlock, confirmations } = flags
  // Searches the wallet's transfers within the month, unless days are given.
  const from = flags.from ?? month?.from
  const to = flags.to ?? (month && month.to - 1n)
  const deployments = flags.deployments ?? findDeployments(process.env)
  const bar = createProgressBar(process.stderr)
  let report: AuditReport
  try {
    report = await audit({
      receipts,
      tabLines,
      ...(month && { period: month }),
      ...(provider !== undefined && { provider }),
      jwks: keys?.jwks ?? { keys: [] },
      rpcUrls: flags.rpc,
      ...(issuer !== undefined && { issuer }),
      ...(wallet && { wallets: wallet }),
      ...(from !== undefined && { from }),
      ...(to !== undefined && { to }),
      ...(fromBlock !== undefined && { fromBlock }),
      ...(confirmations !== undefined && { confirmations }),
      ...(deployments && { deployments: readDeployments(deployments) }),
      onProgress: ({ step, done, total }) => bar.update(labels[step], done, total),
    })
  } finally {
    bar.clear()
  }
  if (flags.csv)
    await pipeline(Readable.from(renderCsv(report, lines.receipts)), createWriteStream(flags.csv))
  const text = flags.json ? renderJson(report, lines, keys?.source ?? '') : renderReport(report, lines)
  process.stdout.write(`${text}\n`)
  return isWell(report, flags.allowPending ?? false) ? exitStatus.ok : exitStatus.unwell
}

function isWell(report: AuditReport, allowPending: boolean): boolean {
  return report.reconciled || (allowPending && isSound(report))
}

function readDeployments(path: string): Deployments {
  try {
    return parseDeployments(JSON.parse(readFileSync(path, 'utf8')))
  } catch (error) {
    throw new CliError('unreadable_file', `--deployments: ${path}: ${(error as Error).message}`, error)
  }
}
