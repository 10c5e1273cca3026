import { readFileSync } from 'node:fs'
import type { GasLimits } from '@tollkeeper/chain/gasLimits'
import {
  type NetworkSettings,
  readGasPerFee,
  readNetworkSettings,
  readPriorityFee,
} from '@tollkeeper/chain/networkSettings'
import {
  createRemoteAccount,
  createRemoteSigner,
  type KeeperAccount,
  type RemoteSigner,
} from '@tollkeeper/chain/remoteSigner'
import { maxIndexLagBlocks } from '@tollkeeper/ledger/facts/recordState'
import { readTriggerSettings } from '@tollkeeper/ledger/queue/triggers'
import { readDatabaseUrls } from '@tollkeeper/ledger/store/pooler'
import {
  ConfigError,
  type Environment,
  parseText,
  readVariable,
  requireTogether,
  requireVariable,
} from '@tollkeeper/runtime/env'
import { readTraceSettings } from '@tollkeeper/runtime/trace'
import { variables } from '@tollkeeper/runtime/variables'
import { offerTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { type NetworkName, networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import type { Address, Hex } from 'viem'
import { privateKeyToAccount, privateKeyToAddress } from 'viem/accounts'

export type KeeperConfig = ReturnType<typeof readKeeperConfig>
export type KeeperSettings = KeeperConfig['settings']
/** What every keeper is told of sending transactions, with the network's own limits where none were set. */
export type SendingSettings = Omit<ReturnType<typeof readSendingSettings>, keyof GasLimits> & GasLimits

/**
 * Reads the keeper's environment; packages/runtime/variables.ts says what each variable means.
 *
 * @throws {ConfigError} It names the variable, what was expected, and what came unless that is a secret.
 */
export function readKeeperConfig(env: Environment) {
  requireTogether(
    () => readDatabaseUrls(env),
    () => readNetworkSettings(env),
    () => requireWallets(env, []),
    () => requireVariable(env, 'PLATFORM_WALLET'),
  )
  const networks = readNetworkSettings(env)
  const platformWallets = [
    requireVariable(env, 'PLATFORM_WALLET'),
    ...(readVariable(env, 'PLATFORM_WALLETS') ?? []),
  ]
  return {
    ...readDatabaseUrls(env),
    networks,
    wallets: requireWallets(env, networks),
    /** Fee recipients whose transfers `POST /submit` takes for the platform's. */
    platformWallets: [...new Set(platformWallets)],
    host: readVariable(env, 'KEEPER_HOST'),
    port: readVariable(env, 'KEEPER_PORT'),
    logLevel: readVariable(env, 'LOG_LEVEL'),
    settings: {
      triggers: readTriggerSettings(env),
      pollMs: readVariable(env, 'KEEPER_POLL_MS') ?? 250,
      leaseMs: readVariable(env, 'KEEPER_LEASE_MS'),
      maxIndexLagBlocks,
      ...readSendingSettings(env),
      gasAllowance: readVariable(env, 'GAS_ALLOWANCE_USD'),
    },
    /** Submissions a minute from one address, and of one provider: each costs a key recovery, and may cost a transaction. */
    submitLimits: { perCaller: 60 },
    /** How long POST /submit waits for its transaction: most HTTP clients and proxies wait for thirty seconds. */
    submitTimeoutMs: 25_000,
    facilitator: {
      isOpen: readVariable(env, 'FACILITATOR_OPEN'),
      /**
       * Payments of one provider, or without an API key of one paid wallet, that may be reserved or wait for POST /settle. With blocks of
       * two seconds that is some 450 settlements a second, more than one wallet settles.
       */
      maxOpen: 1_000,
      /** How long a verified payment is kept for its seller. */
      reserveMs: 90_000,
      /** After how long POST /settle answers settlement_pending. */
      timeoutMs: 40_000,
      /**
       * After how long it answers where nothing was sent, or in version 1, which knows no such answer: a standard client's own
       * limit is 90 s.
       */
      holdMs: 80_000,
    },
    /** What is listed for buyers to find; null: nothing is. */
    discovery: readVariable(env, 'DISCOVERY')
      ? {
          // Both are the gateway's: what a price is paid to follows from them.
          feeSchedule: readVariable(env, 'FEE_SCHEDULE'),
          offerTimeoutSeconds,
        }
      : null,
    tabs: {
      databaseUrl: readVariable(env, 'TABS_DATABASE_URL'),
      /** How many hours a tab may stay open within earned credit. An API that offers no tabs may still have some to close. */
      earnedHours: readVariable(env, 'TABS') ?? 1,
      /** By network, where what settles alone is to be above the network's own least price. */
      minimumPrices: Object.fromEntries(readVariable(env, 'MINIMUM_PRICES_USDC') ?? []),
    },
    trustedProxies: readVariable(env, 'TRUSTED_PROXIES'),
    metricsToken: readVariable(env, 'METRICS_TOKEN'),
    tracing: readTraceSettings(env),
  }
}

/** What every keeper is told of sending transactions; a null among its {@link GasLimits} is the network's own value. */
export function readSendingSettings(env: Environment) {
  const maxFeeGwei = readVariable(env, 'MAX_FEE_GWEI')
  const replaceAfterMs = readVariable(env, 'REPLACE_AFTER_MS')
  return {
    /** A node that lost the transaction gets it again several times before a replacement offers more. */
    rebroadcastAfterMs: Math.round(replaceAfterMs / 5),
    replaceAfterMs,
    priorityFeePerGas: readPriorityFee(env),
    maxFeePerGas: maxFeeGwei === null ? null : BigInt(maxFeeGwei) * 1_000_000_000n,
    gasPerFee: readGasPerFee(env),
    dailyBudget: readVariable(env, 'KEEPER_DAILY_BUDGET_USD'),
    gasTokenUsd: readVariable(env, 'ETH_USD'),
  }
}

/** Where the keys of the gas wallets are. */
export type WalletSettings = {
  /** The keys on this machine. */
  privateKeys: Hex[]
  /** Null: no remote signer. */
  signer: (SignerSettings & { addresses: Address[] }) | null
}

export type SignerSettings = {
  /** By network; null: for all networks without their own. */
  urls: ReadonlyMap<NetworkName | null, string>
  /** PEM texts. */
  tls: Record<'ca' | 'cert' | 'key', string | undefined>
}

/**
 * As {@link readWallets}, for callers that need a wallet.
 *
 * @throws {ConfigError} also if there is none, or if a network has no signer.
 */
export function requireWallets(env: Environment, served: readonly NetworkSettings[]): WalletSettings {
  const wallets = readWallets(env)
  const { privateKeys, signer } = wallets
  if (privateKeys.length === 0 && signer === null) {
    throw new ConfigError(
      'KEEPER_PRIVATE_KEYS',
      'a private key, or several with commas between; or KEEPER_KEY_FILE, or KEEPER_SIGNER_URL',
    )
  }
  if (signer) for (const { network } of served) urlOf(signer, network.name)
  return wallets
}

/** Reads the keys on this machine, from the file if one is named, and the wallets of a remote signer. */
export function readWallets(env: Environment): WalletSettings {
  const file = readVariable(env, 'KEEPER_KEY_FILE')
  const inline = readVariable(env, 'KEEPER_PRIVATE_KEYS') ?? []
  const { parser } = variables.KEEPER_PRIVATE_KEYS
  const privateKeys =
    file === null ? inline : parseText('KEEPER_KEY_FILE', readTextFile('KEEPER_KEY_FILE', file), parser)
  const addresses = readVariable(env, 'KEEPER_SIGNER_ADDRESSES')
  const signer = readSigner(env)
  if (addresses === null || signer === null) {
    if (addresses === null && signer === null) return { privateKeys, signer: null }
    const missing = addresses === null ? 'KEEPER_SIGNER_ADDRESSES' : 'KEEPER_SIGNER_URL'
    throw new ConfigError(missing, variables[missing].parser.expected)
  }
  const here = new Set(privateKeys.map((key) => privateKeyToAddress(key).toLowerCase()))
  const twice = addresses.find((address) => here.has(address))
  // A lease belongs to a process, so within one process two accounts of an address would take each other's nonces.
  if (twice)
    throw new ConfigError('KEEPER_SIGNER_ADDRESSES', 'addresses whose keys are not here as well', twice)
  return { privateKeys, signer: { ...signer, addresses } }
}

/** `KEEPER_SIGNER_URL` and its TLS; null: it isn't set. */
export function readSigner(env: Environment): SignerSettings | null {
  const urls = readVariable(env, 'KEEPER_SIGNER_URL')
  const tls = {
    ca: readPem(env, 'KEEPER_SIGNER_CA_FILE'),
    cert: readPem(env, 'KEEPER_SIGNER_CERT_FILE'),
    key: readPem(env, 'KEEPER_SIGNER_KEY_FILE'),
  }
  if ((tls.cert === undefined) !== (tls.key === undefined)) {
    const missing = tls.cert === undefined ? 'KEEPER_SIGNER_CERT_FILE' : 'KEEPER_SIGNER_KEY_FILE'
    throw new ConfigError(missing, 'the path of a PEM file: a certificate and its key go together')
  }
  return urls && { urls, tls }
}

/** Opens the wallets, without asking a signer yet. @throws {ConfigError} for PEM files without a certificate or key. */
export function openAccounts({ privateKeys, signer }: WalletSettings): KeeperAccount[] {
  const own = privateKeys.map((key) => privateKeyToAccount(key))
  if (signer === null) return own
  const signerOf = openSigners(signer)
  return [...own, ...signer.addresses.map((address) => createRemoteAccount(address, signerOf))]
}

/** @returns a function that gives the signer of a chain. */
export function openSigners(settings: SignerSettings): (chainId: number) => RemoteSigner {
  const signers = new Map([...settings.urls.values()].map((url) => [url, openSigner(url, settings.tls)]))
  return (chainId) => {
    const url = urlOf(settings, networkByChainId(chainId).name)
    return signers.get(url) as RemoteSigner
  }
}

function urlOf({ urls }: SignerSettings, network: NetworkName): string {
  const url = urls.get(network) ?? urls.get(null)
  if (url === undefined) throw new ConfigError('KEEPER_SIGNER_URL', `a signer for ${network} as well`, 'none')
  return url
}

function openSigner(url: string, tls: SignerSettings['tls']): RemoteSigner {
  try {
    return createRemoteSigner({ url, ...tls })
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    throw new ConfigError('KEEPER_SIGNER_CERT_FILE', 'PEM files of a certificate and its key', reason)
  }
}

type PemVariable = `KEEPER_SIGNER_${'CA' | 'CERT' | 'KEY'}_FILE`

function readPem(env: Environment, name: PemVariable): string | undefined {
  const path = readVariable(env, name)
  return path === null ? undefined : readTextFile(name, path)
}

function readTextFile(name: string, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    throw new ConfigError(name, 'the path of a readable file', path)
  }
}
