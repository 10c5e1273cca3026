import type { Debt, DebtFilter } from '@tollkeeper/ledger/acceptance/forgiveDebt'
import type { Database } from '@tollkeeper/ledger/store/database'
import { address, matching, usdc } from '@tollkeeper/runtime/parsers'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { type NetworkName, networkByChainId, networkNames, networks } from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import type { Address, Hex } from 'viem'
import { CliError } from './terminal/cliError.ts'
import { parsedOption, readFlag } from './terminal/options.ts'
import { formatTable } from './terminal/output.ts'

type Flags = { network?: NetworkName; payment?: string; json?: boolean }

const mostShown = 1_000
const txHash = matching('a transaction hash: 0x and 64 hex digits', /^0x[0-9a-f]{64}$/)

/**
 * `payer debts | forgive | covers | credit | unblock`: debts that payers caused, those that the platform bears, what payers may owe, and
 * the end of a payer's block.
 */
export function addPayerCommand(program: Command): void {
  const payer = program
    .command('payer')
    .summary('what payers owe, and unblocking them')
    .description(
      'Lists and forgives what payers owe for payments that were served, and that they cancelled or could not cover. Unblocks payers.',
    )
    .addHelpText('after', '\nExample:\n  $ tollkeeper payer debts')

  withFilters(payer.command('debts'))
    .summary('debts, oldest first')
    .description(
      `Lists the debts. Who has one is refused with payer_in_debt. At most ${mostShown} are shown.`,
    )
    .argument('[address]', 'of one payer only', parseAddress)
    .addHelpText('after', '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer debts --network base')
    .action((address: Address | undefined, flags: Flags) =>
      withDebts(async (sql, { findDebts }) =>
        print(await findDebts(sql, toFilter(flags, address), mostShown), flags),
      ),
    )

  withFilters(payer.command('forgive'))
    .summary('gives debts up')
    .description(
      'Gives up what a payer owes, so that it can buy again within seconds. The database keeps when and why.',
    )
    .argument('<address>', 'the payer', parseAddress)
    .requiredOption('--reason <text>', 'why, for the record')
    .addHelpText(
      'after',
      '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer forgive 0x1000000000000000000000000000000000000001 --reason "paid by bank transfer"',
    )
    .action((address: Address, { reason, ...flags }: Flags & { reason: string }) =>
      withDebts(async (sql, { forgiveDebts }) => {
        const filter = { ...toFilter(flags, address), payer: address }
        const forgiven = await sql.begin((transaction) => forgiveDebts(transaction, filter, reason))
        if (forgiven.length === 0) throw new CliError('no_debt', `${address} owes nothing`)
        print(forgiven, flags)
      }),
    )

  addCoversCommand(payer)
  addCreditCommand(payer)
  addUnblockCommand(payer)
}

function addUnblockCommand(payer: Command): void {
  payer
    .command('unblock')
    .summary('lets the payments of a blocked payer settle again')
    .description(
      'Forgets the transactions in which payments of a payer failed, so that its waiting payments settle with all others. Payments that have failed stay failed.',
    )
    .argument('<address>', 'the payer', parseAddress)
    .addOption(new Option('--network <name>', 'on this network only').choices(networkNames))
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer unblock 0x1000000000000000000000000000000000000001 --network base',
    )
    .action((address: Address, { network, json }: Pick<Flags, 'network' | 'json'>) =>
      withQuarantine(async (sql, { unblockPayer }) => {
        const chainId = network && networks[network].chainId
        const unblocked = await sql.begin((tx) => unblockPayer(tx, { payer: address, chainId }, new Date()))
        if (unblocked.length === 0)
          throw new CliError(
            'unknown_payer',
            `${address} has never paid${network ? ` on ${network}` : ''}. Check the address${network ? ' and the network' : ''}`,
          )
        const rows = unblocked.map(({ chainId, minedFailures, released }) => ({
          payer: address,
          network: networkByChainId(chainId).name,
          failuresBefore: minedFailures,
          failuresNow: 0,
          released,
        }))
        const table = () =>
          formatTable(
            ['payer', 'network', 'failures before', 'now', 'payments released'],
            rows.map((row) => Object.values(row).map(String)),
          )
        process.stdout.write(`${json ? JSON.stringify(rows) : table()}\n`)
      }),
    )
}

async function withQuarantine(
  act: (sql: Database, quarantine: typeof import('@tollkeeper/ledger/queue/quarantine')) => Promise<void>,
): Promise<void> {
  const { withDatabase } = await import('./database/withDatabase.ts')
  const quarantine = await import('@tollkeeper/ledger/queue/quarantine')
  await withDatabase('payer', (sql) => act(sql, quarantine))
}

type CreditFlags = { network?: NetworkName; usdc?: bigint; reason?: string; reset?: boolean; json?: boolean }

function addCreditCommand(payer: Command): void {
  payer
    .command('credit')
    .summary('what a payer may owe on tabs')
    .description(
      'Lets a payer owe more or less on tabs than TAB_CREDIT_USDC, or lists what you have granted. You bear what it defaults of that.',
    )
    .argument('[address]', 'the payer', parseAddress)
    .addOption(new Option('--network <name>', 'on this network').choices(networkNames))
    .addOption(
      parsedOption('--usdc <amount>', 'amount that the payer may owe beyond earned credit; 0: none', usdc()),
    )
    .option('--reason <text>', 'why, for the record')
    .option('--reset', 'remove the grant, so that the default limit applies again')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer credit 0x1000000000000000000000000000000000000001 --network base --usdc 50 --reason "signed contract"',
    )
    .action((address: Address | undefined, { network, usdc: amount, reason, reset, json }: CreditFlags) =>
      withCredit(async (sql, { findGrantedCredit, grantCredit }) => {
        if (address !== undefined) {
          if (network === undefined || (reset ? amount !== undefined : amount === undefined || !reason))
            throw new CliError('invalid_flags', 'name --network, and either --usdc with --reason, or --reset')
          const { chainId } = networks[network]
          await grantCredit(sql, {
            chainId,
            payer: address,
            amount: reset ? null : (amount ?? null),
            reason: reason ?? '',
          })
        }
        const rows = (await findGrantedCredit(sql, mostShown)).map((one) => ({
          payer: one.payer,
          network: networkByChainId(one.chainId).name,
          amount_usdc: formatUsdc(one.amount),
          grantedAt: one.grantedAt.toISOString(),
          reason: one.reason,
        }))
        const table = () =>
          formatTable(['payer', 'network', 'USDC', 'granted', 'because'], rows.map(Object.values))
        process.stdout.write(`${json ? JSON.stringify(rows) : table()}\n`)
      }),
    )
}

async function withCredit(
  act: (sql: Database, credit: typeof import('@tollkeeper/ledger/acceptance/grantCredit')) => Promise<void>,
): Promise<void> {
  const { withDatabase } = await import('./database/withDatabase.ts')
  const credit = await import('@tollkeeper/ledger/acceptance/grantCredit')
  await withDatabase('payer', (sql) => act(sql, credit))
}

type CoverFlags = {
  network?: NetworkName
  payee?: Address
  paid?: Hex
  usdc?: bigint
  json?: boolean
}

function addCoversCommand(payer: Command): void {
  payer
    .command('covers')
    .summary('defaults on tabs that the platform bears')
    .description(
      'Lists what the platform owes to providers for tabs that defaulted within earned credit, or records that you have paid it.',
    )
    .addOption(new Option('--network <name>', 'on this network only').choices(networkNames))
    .addOption(parsedOption('--payee <address>', "of this provider's wallet only", address))
    .addOption(
      parsedOption('--paid <hash>', 'the transaction in which you paid this wallet: records it', txHash),
    )
    .addOption(parsedOption('--usdc <amount>', 'the amount that you paid', usdc()))
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer covers --network base')
    .action(({ network, payee, paid, usdc: amount, json }: CoverFlags) =>
      withCovers(async (sql, { findCoveredDefaults, recordCoverPayment }) => {
        const chainId = network && networks[network].chainId
        if (paid !== undefined) {
          if (chainId === undefined || payee === undefined || amount === undefined)
            throw new CliError('invalid_flags', '--paid needs --network, --payee, and --usdc as well')
          const owed = await recordCoverPayment(sql, { chainId, payee }, { amount, txHash: paid })
          if (owed !== undefined)
            throw new CliError(
              'other_amount',
              `The platform owes ${formatUsdc(owed)} USDC to ${payee}, not ${formatUsdc(amount)}: nothing was recorded`,
            )
        }
        const covers = await findCoveredDefaults(sql, { chainId, payee }, mostShown)
        const rows = covers.map((one) => ({
          payee: one.payee,
          network: networkByChainId(one.chainId).name,
          providerId: one.providerId,
          since: one.since.toISOString(),
          amount_usdc: formatUsdc(one.amount),
          tabs: one.tabs,
        }))
        const table = () =>
          formatTable(['payee', 'network', 'provider', 'since', 'USDC', 'tabs'], rows.map(Object.values))
        process.stdout.write(`${json ? JSON.stringify(rows) : table()}\n`)
      }),
    )
}

async function withCovers(
  act: (
    sql: Database,
    covers: typeof import('@tollkeeper/ledger/acceptance/coveredDefaults'),
  ) => Promise<void>,
): Promise<void> {
  const { withDatabase } = await import('./database/withDatabase.ts')
  const covers = await import('@tollkeeper/ledger/acceptance/coveredDefaults')
  await withDatabase('payer', (sql) => act(sql, covers))
}

/** Loads the database's code only if it is needed. */
async function withDebts(
  act: (sql: Database, debts: typeof import('@tollkeeper/ledger/acceptance/forgiveDebt')) => Promise<void>,
): Promise<void> {
  const { withDatabase } = await import('./database/withDatabase.ts')
  const debts = await import('@tollkeeper/ledger/acceptance/forgiveDebt')
  await withDatabase('payer', (sql) => act(sql, debts))
}

function withFilters(command: Command): Command {
  return command
    .addOption(new Option('--network <name>', 'on this network only').choices(networkNames))
    .option('--payment <id>', 'of this payment only')
    .option('--json', 'print JSON')
}

function toFilter({ network, payment }: Flags, payer: Address | undefined): DebtFilter {
  return { chainId: network && networks[network].chainId, paymentId: payment, payer }
}

function print(debts: readonly Debt[], { json }: Flags): void {
  const rows = debts.map(({ chainId, payer, paymentId, code, amount, acceptedAt }) => ({
    payer,
    network: networkByChainId(chainId).name,
    paymentId,
    acceptedAt: acceptedAt.toISOString(),
    amount_usdc: formatUsdc(amount),
    code,
  }))
  const table = () =>
    formatTable(['payer', 'network', 'payment', 'accepted', 'USDC', 'because'], rows.map(Object.values))
  process.stdout.write(`${json ? JSON.stringify(rows) : table()}\n`)
}

function parseAddress(text: string): Address {
  return readFlag('address', text, address)
}
