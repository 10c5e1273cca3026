export type { Payer, PayerWallet } from '../client/payer.ts'
export type { SavedTab, TabStore } from '../client/tabStore.ts'
export type { OpenTab, TabOptions } from '../client/tabs.ts'
export { keepTabs, TabEvmScheme, type TabSchemeOptions } from './tabEvmScheme.ts'
