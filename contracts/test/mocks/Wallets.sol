// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

/// @notice An ERC-1271 wallet whose signatures are three copies of its owner's signature.
contract ContractWallet is IERC1271 {
    address private immutable OWNER;

    constructor(address owner) {
        OWNER = owner;
    }

    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        if (signature.length != 195) return 0xffffffff;
        bytes32 first = keccak256(signature[:65]);
        bool same = first == keccak256(signature[65:130]) && first == keccak256(signature[130:]);
        return same && ECDSA.recover(hash, signature[:65]) == OWNER ? IERC1271.isValidSignature.selector : bytes4(0);
    }
}

/// @notice Accepts the vectors' long signatures, which are the only ones over 65 bytes.
contract VectorWallet {
    function isValidSignature(bytes32, bytes calldata signature) external pure returns (bytes4) {
        return signature.length > 65 ? IERC1271.isValidSignature.selector : bytes4(0);
    }
}

/// @notice Attacks by a wallet on the caller that asks it to verify a signature.
enum Attack {
    BURN_ALL_GAS,
    INVALID_OPCODE,
    RETURN_BOMB,
    REVERT_BOMB,
    REENTER,
    NO_ANSWER
}

contract HostileWallet is IERC1271 {
    Attack private immutable ATTACK;
    address private immutable SETTLEMENT;
    bytes private _reentrance;

    constructor(Attack attack, address settlement, bytes memory reentrance) {
        (ATTACK, SETTLEMENT, _reentrance) = (attack, settlement, reentrance);
    }

    function isValidSignature(bytes32, bytes calldata) external view returns (bytes4) {
        if (ATTACK == Attack.BURN_ALL_GAS) {
            assembly ("memory-safe") {
                for {} 1 {} {}
            }
        } else if (ATTACK == Attack.INVALID_OPCODE) {
            assembly ("memory-safe") {
                invalid()
            }
        } else if (ATTACK == Attack.RETURN_BOMB) {
            assembly {
                return(0, 20000)
            }
        } else if (ATTACK == Attack.REVERT_BOMB) {
            assembly {
                revert(0, 20000)
            }
        } else if (ATTACK == Attack.REENTER) {
            (bool success,) = SETTLEMENT.staticcall(_reentrance);
            return success ? IERC1271.isValidSignature.selector : bytes4(0);
        }
        return 0;
    }
}
