/** `node --import`: takes what `.env` says into the environment; what is set already stays. */
import { existsSync } from 'node:fs'

if (existsSync('.env')) process.loadEnvFile('.env')
