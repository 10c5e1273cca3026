// This constant is in the SDK because the SDK's middleware also prints the command, and the SDK can't import this package.
export { ownCommand, whereItRuns } from '@tollkeeper/sdk/middleware/ownCommand'
