// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {SettlementTest} from "./support/SettlementTest.sol";

/// @notice A plain account that signed an EIP-7702 delegation has code, so USDC asks that code to verify its
/// signatures.
contract DelegationTest is SettlementTest {
    function _delegate(address account, address implementation) private {
        vm.etch(account, abi.encodePacked(hex"ef0100", implementation));
        vm.assertEq(account.code.length, 23, "the delegation");
    }

    function test_behavior_delegatedBuyerWithoutErc1271FailsAlone() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 3);
        _delegate(_buyer(1), address(new Bystander()));
        vm.assertEq(_settle(payments), hex"113411", "outcomes");
    }

    function test_behavior_delegatedBuyerWithErc1271Settles() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 3);
        _delegate(_buyer(1), address(new SelfSigner()));
        vm.assertEq(_settle(payments), hex"111111", "outcomes");
    }

    function test_behavior_revokedDelegationSettlesAgain() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 3);
        _delegate(_buyer(1), address(new Bystander()));
        _settle(payments);
        vm.etch(_buyer(1), "");
        vm.assertEq(_settle(payments), hex"221122", "outcomes");
    }
}

/// @notice An account implementation without ERC-1271.
contract Bystander {
    fallback() external payable {}
}

/// @notice An account implementation that accepts the signatures of the account that delegates to it.
contract SelfSigner is IERC1271 {
    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        return ECDSA.recover(hash, signature) == address(this) ? IERC1271.isValidSignature.selector : bytes4(0);
    }
}
