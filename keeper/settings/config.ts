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

export type KeeperEnvironment = ReturnType<typeof readKeeperEnvironment>
export type KeeperSettings = KeeperEnvironment['settings']
/** Every keeper's settings for sending transactions. Limits that aren't set have the network's values. */
export type SendingSettings = Omit<ReturnType<typeof readSendingSettings>, keyof GasLimits> & GasLimits

/**
 * Reads the keeper's environment. packages/runtime/variables.ts describes each variable.
 *
 * @throws {ConfigError} The message names the variable, the expected value, and the received value unless it is a secret.
 */
export function readKeeperEnvironment(env: Environment) {
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
    /** Fee recipients: `POST /submit` treats a transfer to one of them as a fee of the platform. */
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
    /** Maximum submissions per minute from one address, and from one provider. Each submission costs a key recovery, and possibly a transaction. */
    submitLimits: { perCaller: 60 },
    /** Maximum wait in ms of POST /submit for its transaction. Most HTTP clients and proxies wait for thirty seconds. */
    submitTimeoutMs: 25_000,
    facilitator: {
      isOpen: readVariable(env, 'FACILITATOR_OPEN'),
      /**
       * Maximum number of one provider's payments that are reserved, or that callers of POST /settle wait for. Without an API key, the limit applies
       * to the wallet that is paid. With blocks of two seconds, it allows about 450 settlements per second, more than one wallet settles.
       */
      maxOpen: 1_000,
      /** Time in ms for which a verified payment stays reserved for its seller. */
      reserveMs: 90_000,
      /** Time in ms after which POST /settle answers settlement_pending. */
      timeoutMs: 40_000,
      /**
       * Time in ms after which POST /settle voids a payment that wasn't sent, so that its answer is final. The time limit of a standard
       * client is 90 s.
       */
      holdMs: 80_000,
    },
    /** Settings of the list in which buyers find resources; null if this keeper lists nothing. */
    discovery: readVariable(env, 'DISCOVERY')
      ? {
          // The keeper computes each price's recipient and fee for the list, so both settings must be those of the gateway.
          feeSchedule: readVariable(env, 'FEE_SCHEDULE'),
          offerTimeoutSeconds,
        }
      : null,
    tabs: {
      databaseUrl: readVariable(env, 'TABS_DATABASE_URL'),
      /**
       * Maximum hours for which a tab may stay open within earned credit. The default applies to a gateway that no longer offers tabs but
       * still has open ones.
       */
      earnedHours: readVariable(env, 'TABS') ?? 1,
      /** Minimum price of a payment that isn't made on a tab. Contains only networks for which the operator raised the network's own minimum. */
      minimumPrices: Object.fromEntries(readVariable(env, 'MINIMUM_PRICES_USDC') ?? []),
    },
    trustedProxies: readVariable(env, 'TRUSTED_PROXIES'),
    webhookAllowPrivate: readVariable(env, 'WEBHOOK_ALLOW_PRIVATE'),
    metricsToken: readVariable(env, 'METRICS_TOKEN'),
    tracing: readTraceSettings(env),
  }
}

/** Reads every keeper's settings for sending transactions. If one of the {@link GasLimits} is null, the network's own value applies. */
export function readSendingSettings(env: Environment) {
  const maxFeeGwei = readVariable(env, 'MAX_FEE_GWEI')
  const replaceAfterMs = readVariable(env, 'REPLACE_AFTER_MS')
  return {
    /** A node that lost the transaction receives it again several times before a replacement offers a higher fee. */
    rebroadcastAfterMs: Math.round(replaceAfterMs / 5),
    replaceAfterMs,
    priorityFeePerGas: readPriorityFee(env),
    maxFeePerGas: maxFeeGwei === null ? null : BigInt(maxFeeGwei) * 1_000_000_000n,
    gasPerFee: readGasPerFee(env),
    dailyBudget: readVariable(env, 'KEEPER_DAILY_BUDGET_USD'),
    gasTokenUsd: readVariable(env, 'ETH_USD'),
  }
}

/** Where the gas wallets' keys are: on this machine, in a remote signer, or both. */
export type WalletSettings = {
  /** The keys on this machine. */
  privateKeys: Hex[]
  /** Null if there is no remote signer. */
  signer: (SignerSettings & { addresses: Address[] }) | null
}

export type SignerSettings = {
  /** The signer's URL by network. The key null holds the URL for all networks that aren't named. */
  urls: ReadonlyMap<NetworkName | null, string>
  /** PEM texts. */
  tls: Record<'ca' | 'cert' | 'key', string | undefined>
}

/**
 * Reads the wallets like {@link readWallets}, and requires at least one.
 *
 * @throws {ConfigError} if there is no wallet, or if a network has no signer
 */
export function requireWallets(env: Environment, served: readonly NetworkSettings[]): WalletSettings {
  const wallets = readWallets(env)
  const { privateKeys, signer } = wallets
  if (privateKeys.length === 0 && signer === null) {
    throw new ConfigError(
      'KEEPER_PRIVATE_KEYS',
      'a private key, or several separated by commas (or set KEEPER_KEY_FILE or KEEPER_SIGNER_URL)',
    )
  }
  if (signer) for (const { network } of served) urlOf(signer, network.name)
  return wallets
}

/** Reads the keys on this machine (from KEEPER_KEY_FILE if it is set) and the wallets of a remote signer. */
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
  // A lease belongs to a process. So within one process, two accounts of the same address would use each other's nonces.
  if (twice)
    throw new ConfigError(
      'KEEPER_SIGNER_ADDRESSES',
      'addresses whose private keys are not set in this process',
      twice,
    )
  return { privateKeys, signer: { ...signer, addresses } }
}

/** Reads `KEEPER_SIGNER_URL` and the signer's TLS files. Returns null if no URL is set. */
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

/** Opens the wallets without contacting a signer yet. @throws {ConfigError} for PEM files without a certificate or key */
export function openAccounts({ privateKeys, signer }: WalletSettings): KeeperAccount[] {
  const own = privateKeys.map((key) => privateKeyToAccount(key))
  if (signer === null) return own
  const signerOf = openSigners(signer)
  return [...own, ...signer.addresses.map((address) => createRemoteAccount(address, signerOf))]
}

/** @returns a function that returns the signer of a chain */
export function openSigners(settings: SignerSettings): (chainId: number) => RemoteSigner {
  const signers = new Map([...settings.urls.values()].map((url) => [url, openSigner(url, settings.tls)]))
  return (chainId) => {
    const url = urlOf(settings, networkByChainId(chainId).name)
    return signers.get(url) as RemoteSigner
  }
}

function urlOf({ urls }: SignerSettings, network: NetworkName): string {
  const url = urls.get(network) ?? urls.get(null)
  if (url === undefined) throw new ConfigError('KEEPER_SIGNER_URL', `a signer for ${network} too`, 'none')
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
