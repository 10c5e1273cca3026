/** Seconds before `validBefore` that are reserved for signing, sending and mining a transaction. */
export const settleMarginSeconds = 15
