import type { Debt, DebtFilter } from '@tollkeeper/ledger/acceptance/forgiveDebt'
import type { Database } from '@tollkeeper/ledger/store/database'
import { address, matching, usdc } from '@tollkeeper/runtime/parsers'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import {
  type NetworkName,
  networkByChainId,
  networkByName,
  networkNames,
} from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import type { Address, Hex } from 'viem'
import { CliError } from './terminal/cliError.ts'
import { jsonOption, parsedOption, parseValue } from './terminal/options.ts'
import { formatTable } from './terminal/output.ts'

type Flags = { network?: NetworkName; payment?: string; json?: boolean }

const mostShown = 1_000
const txHash = matching('a transaction hash: 0x and 64 hex digits', /^0x[0-9a-f]{64}$/)

/**
 * Adds `payer debts | forgive | covers | credit | unblock`: debts of payers, debts that the platform bears, the credit of payers,
 * and unblocking payers.
 */
export function addPayerCommand(program: Command): void {
  const payer = program
    .command('payer')
    .summary('debts and credit of payers, and blocked payers')
    .description(
      'Lists and forgives debts: payments that were served, and that the payer then cancelled or could not cover. Also sets the credit of payers, and unblocks payers. Reads DATABASE_URL.',
    )
    .addHelpText('after', '\nExample:\n  $ tollkeeper payer debts')

  withFilters(payer.command('debts'))
    .summary('list debts, oldest first')
    .description(
      `Lists debts, at most ${mostShown}. The gateway refuses a payer with a debt (payer_in_debt).`,
    )
    .argument('[address]', 'only debts of this payer', parseAddress)
    .addHelpText('after', '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer debts --network base')
    .action((address: Address | undefined, flags: Flags) =>
      withDebts(async (sql, { findDebts }) =>
        print(await findDebts(sql, toFilter(flags, address), mostShown), flags),
      ),
    )

  withFilters(payer.command('forgive'))
    .summary('forgive debts')
    .description(
      'Forgives the debts of a payer, so that it can buy again within seconds. The database records when and why.',
    )
    .argument('<address>', 'the payer', parseAddress)
    .requiredOption('--reason <text>', 'reason, for the record')
    .addHelpText(
      'after',
      '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer forgive 0x1000000000000000000000000000000000000001 --reason "paid by bank transfer"',
    )
    .action((address: Address, { reason, ...flags }: Flags & { reason: string }) =>
      withDebts(async (sql, { forgiveDebts }) => {
        const filter = { ...toFilter(flags, address), payer: address }
        const forgiven = await sql.begin((transaction) => forgiveDebts(transaction, filter, reason))
        if (forgiven.length === 0)
          throw new CliError(
            'no_debt',
            `${address} owes nothing here. \`tollkeeper payer debts\` lists all debts`,
          )
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
    .summary("let a blocked payer's payments settle again")
    .description(
      "Resets a payer's count of failed transactions to 0, so that its waiting payments settle together with other payments again. Payments that failed stay failed.",
    )
    .argument('<address>', 'the payer', parseAddress)
    .addOption(new Option('--network <name>', 'only on this network').choices(networkNames))
    .addOption(jsonOption())
    .addHelpText(
      'after',
      '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer unblock 0x1000000000000000000000000000000000000001 --network base',
    )
    .action((address: Address, { network, json }: Pick<Flags, 'network' | 'json'>) =>
      withIsolation(async (sql, { unblockPayer }) => {
        const chainId = network && networkByName(network).chainId
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

async function withIsolation(
  act: (sql: Database, isolation: typeof import('@tollkeeper/ledger/queue/isolation')) => Promise<void>,
): Promise<void> {
  const { withDatabase } = await import('./database/withDatabase.ts')
  const isolation = await import('@tollkeeper/ledger/queue/isolation')
  await withDatabase('payer', (sql) => act(sql, isolation))
}

type CreditFlags = { network?: NetworkName; usdc?: bigint; reason?: string; reset?: boolean; json?: boolean }

function addCreditCommand(payer: Command): void {
  payer
    .command('credit')
    .summary('list or set how much payers may owe on tabs')
    .description(
      'Lets a payer owe more or less on tabs than TAB_CREDIT_USDC, or lists the credit that you granted. You bear the loss if the payer defaults.',
    )
    .argument('[address]', 'the payer', parseAddress)
    .addOption(new Option('--network <name>', 'network of the credit').choices(networkNames))
    .addOption(parsedOption('--usdc <amount>', 'maximum debt in USDC beyond earned credit; 0: none', usdc()))
    .option('--reason <text>', 'reason, for the record')
    .option('--reset', 'remove the grant, so that the default limit applies again')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer credit 0x1000000000000000000000000000000000000001 --network base --usdc 50 --reason "signed contract"',
    )
    .action((address: Address | undefined, { network, usdc: amount, reason, reset, json }: CreditFlags) =>
      withCredit(async (sql, { findGrantedCredit, grantCredit }) => {
        if (address !== undefined) {
          if (network === undefined || (reset ? amount !== undefined : amount === undefined || !reason))
            throw new CliError(
              'invalid_flags',
              '--network: required with an address, together with --usdc and --reason, or with --reset',
            )
          const { chainId } = networkByName(network)
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
    .summary('list what the platform owes for defaulted tabs')
    .description(
      'Lists what the platform owes to providers for tabs that defaulted within earned credit, or records that you paid it.',
    )
    .addOption(new Option('--network <name>', 'only on this network').choices(networkNames))
    .addOption(parsedOption('--payee <address>', "only what is owed to this provider's wallet", address))
    .addOption(parsedOption('--paid <hash>', 'record that you paid this wallet in this transaction', txHash))
    .addOption(parsedOption('--usdc <amount>', 'amount in USDC that you paid', usdc()))
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper payer covers --network base')
    .action(({ network, payee, paid, usdc: amount, json }: CoverFlags) =>
      withCovers(async (sql, { findCoveredDefaults, recordCoverPayment }) => {
        const chainId = network && networkByName(network).chainId
        if (paid !== undefined) {
          if (chainId === undefined || payee === undefined || amount === undefined)
            throw new CliError('invalid_flags', '--paid: requires --network, --payee and --usdc')
          const owed = await recordCoverPayment(sql, { chainId, payee }, { amount, txHash: paid })
          if (owed !== undefined)
            throw new CliError(
              'other_amount',
              `The platform owes ${formatUsdc(owed)} USDC to ${payee}, not ${formatUsdc(amount)} USDC, so nothing was recorded. Pay and record the amount that is owed`,
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

/** Loads the database's code only when it is needed. */
async function withDebts(
  act: (sql: Database, debts: typeof import('@tollkeeper/ledger/acceptance/forgiveDebt')) => Promise<void>,
): Promise<void> {
  const { withDatabase } = await import('./database/withDatabase.ts')
  const debts = await import('@tollkeeper/ledger/acceptance/forgiveDebt')
  await withDatabase('payer', (sql) => act(sql, debts))
}

function withFilters(command: Command): Command {
  return command
    .addOption(new Option('--network <name>', 'only debts on this network').choices(networkNames))
    .option('--payment <id>', 'only the debt of this payment')
    .addOption(jsonOption())
}

function toFilter({ network, payment }: Flags, payer: Address | undefined): DebtFilter {
  return { chainId: network && networkByName(network).chainId, paymentId: payment, payer }
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
  return parseValue(text, address)
}
