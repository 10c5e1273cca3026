/** A transaction has to be signed, sent and mined before `validBefore`. */
export const settleMarginSeconds = 15
