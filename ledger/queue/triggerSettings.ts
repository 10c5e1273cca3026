import { type Environment, readVariable } from '#process/env'
import { defaultTriggers, type TriggerSettings } from './triggers.ts'

/**
 * Thresholds of the triggers; the api reads them too, for its estimates.
 *
 * @throws {ConfigError}
 */
export function readTriggerSettings(env: Environment): TriggerSettings {
  return {
    ...defaultTriggers,
    amount: readVariable(env, 'TRIGGER_AMOUNT_USDC'),
    count: readVariable(env, 'TRIGGER_COUNT'),
    raisedAmount: readVariable(env, 'TRIGGER_RAISED_AMOUNT_USDC'),
    raisedCount: readVariable(env, 'TRIGGER_RAISED_COUNT'),
    raisedAboveCost: readVariable(env, 'TRIGGER_RAISED_ABOVE_USD'),
    timeMs: readVariable(env, 'TRIGGER_TIME_SECONDS') * 1000,
    highValue: readVariable(env, 'TRIGGER_HIGH_VALUE_USDC'),
    expiryLeadMs: readVariable(env, 'TRIGGER_EXPIRY_LEAD_SECONDS') * 1000,
    minAgeMs: readVariable(env, 'TRIGGER_MIN_AGE_SECONDS') * 1000,
  }
}
