import type { Address, Hex } from 'viem'
import { create2Address } from './create2.ts'
import * as batchSettlement from './generated/batchSettlement.ts'
import * as splitterFactory from './generated/splitterFactory.ts'
import * as tabSettlement from './generated/tabSettlement.ts'

/** One of our contracts, which has the same address on every network. */
export type Contract = { name: string; address: Address; creationCode: Hex; runtimeCode: Hex }

/** The contracts, by their names in a deployments file. */
export const contracts = {
  batchSettlement: toContract('BatchSettlement', batchSettlement),
  splitterFactory: toContract('SplitterFactory', splitterFactory),
  tabSettlement: toContract('TabSettlement', tabSettlement),
}

/** The contracts' addresses, in the form of a deployments file. */
export const contractAddresses = {
  batchSettlement: contracts.batchSettlement.address,
  splitterFactory: contracts.splitterFactory.address,
  tabSettlement: contracts.tabSettlement.address,
}

function toContract(name: string, code: Pick<Contract, 'creationCode' | 'runtimeCode'>): Contract {
  return { name, address: create2Address(code.creationCode).toLowerCase() as Address, ...code }
}
