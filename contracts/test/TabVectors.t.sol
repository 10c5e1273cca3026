// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ITabSettlement} from "../interfaces/ITabSettlement.sol";
import {VectorWallet} from "./mocks/Wallets.sol";
import {TabTest} from "./support/TabTest.sol";

/// @notice Settles the batches that TypeScript packed, from test/vectors/tabBatches.json. The SDK's tests also read
/// this file.
contract TabVectorsTest is TabTest {
    string private _json;

    function _key(uint256 batch, string memory field) private pure returns (string memory) {
        return string.concat(".batches[", vm.toString(batch), "].", field);
    }

    function _key(uint256 batch, uint256 tab, string memory field) private pure returns (string memory) {
        return _key(batch, string.concat("tabs[", vm.toString(tab), "].", field));
    }

    function test_default_settleAsPacked() public {
        _json = vm.readFile("test/vectors/tabBatches.json");
        vm.chainId(vm.parseJsonUint(_json, ".domain.chainId"));
        usdc = _placeUsdc(
            vm.parseJsonAddress(_json, ".domain.verifyingContract"), vm.parseJsonString(_json, ".domain.name")
        );
        address contract_ = vm.parseJsonAddress(_json, ".contract");
        vm.etch(contract_, address(tabSettlement).code);
        uint256 batches;
        for (; vm.keyExistsJson(_json, _key(batches, "name")); ++batches) {
            uint256 state = vm.snapshotState();
            _settleVector(contract_, batches);
            vm.revertToState(state);
        }
        vm.assertGe(batches, 3, "vectors");
    }

    function _settleVector(address contract_, uint256 batch) private {
        uint256 tabs;
        for (; vm.keyExistsJson(_json, _key(batch, tabs, "payer")); ++tabs) {
            address payer = vm.parseJsonAddress(_json, _key(batch, tabs, "payer"));
            usdc.mint(payer, vm.parseJsonUint(_json, _key(batch, tabs, "value")));
            if (vm.parseJsonBytes(_json, _key(batch, tabs, "signature")).length > 65) {
                vm.etch(payer, address(new VectorWallet()).code);
            }
        }
        bytes memory settledLines = vm.parseJsonBytes(_json, _key(batch, "settledLines"));
        vm.expectEmit(true, true, true, true, contract_);
        emit ITabSettlement.TabsSettled(
            vm.parseJsonBytes32(_json, _key(batch, "batch.batchId")),
            vm.parseJsonAddress(_json, _key(batch, "batch.feeRecipient")),
            uint16(vm.parseJsonUint(_json, _key(batch, "batch.rewardShare"))),
            _splits(batch),
            settledLines
        );
        (bool success, bytes memory answer) = contract_.call(vm.parseJsonBytes(_json, _key(batch, "calldata")));
        vm.assertTrue(success, "settle");
        vm.assertEq(abi.decode(answer, (bytes)), _repeat(0x10, tabs), vm.parseJsonString(_json, _key(batch, "name")));
        for (uint256 i; i < tabs; ++i) {
            address payer = vm.parseJsonAddress(_json, _key(batch, i, "payer"));
            vm.assertTrue(usdc.authorizationState(payer, vm.parseJsonBytes32(_json, _key(batch, i, "nonce"))), "the nonce");
            vm.assertEq(usdc.balanceOf(payer), 0, "the payer's remaining balance");
        }
    }

    function _splits(uint256 batch) private view returns (uint256[] memory words) {
        words = vm.parseJsonUintArray(_json, _key(batch, "splits"));
    }
}
